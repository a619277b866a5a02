"""From text to a measured model through the commands, as a new user would."""

from pathlib import Path

import pytest

from tests.command import command

SMALL = [
    "model.num_layers=2",
    "model.width=16",
    "model.num_heads=2",
    "model.inner_width=32",
    "data.lanes=4",
    "train.steps=6",
    "train.warmup_steps=2",
    "train.log_every=2",
    "train.validate_every=3",
]


def segue(*arguments: object, code: int = 0) -> str:
    """What the command prints: its result, or its message."""
    output, errors = both(*arguments, code=code)
    return output if code == 0 else errors


def both(*arguments: object, code: int = 0) -> tuple[str, str]:
    """What the command prints on standard output and on standard error."""
    done = command(*arguments, width=160)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    lines = [f"第{n}回 话说天下大势，分久必合，合久必分。\nLine {n} of a text in two languages.\n" for n in range(400)]
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    output = segue(
        "prepare", folder / "text.txt", "--out", folder / "store", "--vocabulary-size", 400, "--validation-share", 0.1
    )
    assert "documents" in output
    return folder


def trained(work: Path, preset: str, *extra: str) -> Path:
    run = work / preset
    stores = [f"data.store={work / 'store'}", f"data.validation={work / 'store-valid'}"]
    output, progress = both("pretrain", preset, *stores, *SMALL, *extra, "--out", run)
    assert output.startswith("Done at step 6")  # alone: the rest is progress
    assert "tokens/s" in progress
    assert "of peak" in progress
    return run


def test_causal(work: Path) -> None:
    run = trained(work, "small-transformer-xl")
    plain = segue("evaluate", run / "best", work / "store-valid")
    assert "perplexity" in plain
    swept = segue(
        "evaluate", run / "best", work / "store-valid", "--sweep", "memory_length=8,64", "--plot", work / "sweep.png"
    )
    assert len([line for line in swept.splitlines() if line.startswith(("8 ", "64 "))]) == 2
    assert (work / "sweep.png").stat().st_size > 5000
    segue("evaluate", run / "last", work / "store-valid", "--window", 16, "--stride", 8, "--limit", 200)
    segue("evaluate", run / "last", work / "store-valid", "--attention-span", 20, "--clamp-distance", 10)
    segue("plot", run, "--out", work / "runs.png")
    assert (work / "runs.png").stat().st_size > 5000
    assert "All checks passed." in segue("doctor", run / "best")
    message = segue("evaluate", run / "best", work / "store-valid", "--sweep", "nonsense", code=2)
    assert "memory_length=N,N" in message


@pytest.mark.parametrize(
    "spans", ["pieces", *(pytest.param(name, marks=pytest.mark.long) for name in ("words", "characters"))]
)
def test_permutation(work: Path, spans: str) -> None:
    extra = [
        f"data.permutation.spans={spans}",
        "data.segment_length=32",
        "model.memory.length=16",
        "model.memory.reuse_length=16",
    ]
    run = work / f"xlnet-{spans}"
    stores = [f"data.store={work / 'store'}", f"data.validation={work / 'store-valid'}"]
    _, progress = both("pretrain", "small-xlnet", *stores, *SMALL, *extra, "--out", run)
    assert progress.count("segue only: ") == 1  # its norms come first: said before it is trained
    assert "model.norm_first must be False" in " ".join(progress.split())
    ways = ((), ("--order", "random"), ("--pseudo", "--limit", 40))
    for options in ways if spans == "pieces" else ways[:1]:  # how it is evaluated does not depend on how it was trained
        assert "perplexity" in segue("evaluate", run / "best", work / "store-valid", *options)


def test_masked_and_gpt(work: Path) -> None:
    bert = trained(work, "small-bert", "data.segment_length=32", "data.masking.whole_words=true")
    assert "perplexity" in segue("evaluate", bert / "best", work / "store-valid", "--pseudo", "--limit", 40)
    assert "pseudo-likelihood" in segue("evaluate", bert / "best", work / "store-valid", code=2)
    trained(work, "small-gpt")


def test_plan(work: Path) -> None:
    output = segue("plan", "small-transformer-xl", f"data.store={work / 'store'}", *SMALL)
    for word in ("parameters", "memory", "step", "time"):
        assert word in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pretrain", "small-transformer-xl"), "no --out"),
        (("pretrain", "small-transformer-xl", "--out", "x"), "data.store must be given"),
        (("pretrain", "nonsense", "--out", "x"), "a config must be a file or one of"),
        (("plan", "vanilla-12"), "`segue models vanilla-12 > vanilla-12.toml`"),
        (("pretrain", "small-transformer-xl", "data.store=nowhere", "--out", "x"), "a store must be a folder"),
        (("evaluate", "nowhere", "nowhere"), "a store must be a folder"),
        (("plot", "nowhere"), "must contain metrics.jsonl"),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], message: str) -> None:
    assert message in segue(*arguments, code=2)
