from pathlib import Path

import pytest

from segue.errors import ConfigError
from segue.study.load import open_study, ready_studies
from segue.study.plan import resolved_variants
from tests.study.studies import MEASURES, STUDY, planned, write_study


def test_all_problems_are_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = STUDY.replace("tokens = 64", "tokens = 0").replace("width = 16", "widht = 16").replace("[1, 2]", "[1, 1]")
    text = text.replace("learning_rate = 0.01", "learning_rate = -1.0\nsteps = 5").replace("points", "pionts")
    text += '\n[[paper]]\nsource = "p"\nours = "nothing"\nvalues = {"memry" = 1.0}\n'
    with pytest.raises(ConfigError) as error:
        open_study(write_study(tmp_path, text))
    message = str(error.value)
    assert message.startswith("The study has 9 problems:")
    for part in (
        "budget.tokens must be at least 1; got 0.",
        "budget.pionts is not a setting. Did you mean budget.points?",
        "every variant: model.widht is not a setting. Did you mean model.width?",
        "every variant: train.learning_rate must be above 0; got -1.0.",
        "seeds must differ from each other; got 1 2 times.",
        "base: train.steps follows from [corpus], [budget] and seeds.",
        "paper 'p': ours must be one of validation; got 'nothing'.",
        "got 'memry'. Did you mean 'memory'?",
        "values must have the first variant, 'memory'",
    ):
        assert part in message, part


def test_a_variant_that_is_malformed_hides_no_other_mistake(tmp_path: Path) -> None:
    text = STUDY.replace('name = "no memory"', 'nam = "no memory"', 1).replace("seeds = [1, 2]", "seeds = [1, 1]", 1)
    text = text.replace('files = ["texts.txt"]', 'files = ["nowhere.txt"]', 1)
    with pytest.raises(ConfigError, match="The study has ") as error:
        open_study(write_study(tmp_path, text))
    for part in ("nam is not a setting", "got 1 2 times", "corpus.files must be files; got 'nowhere.txt'"):
        assert part in str(error.value)
    assert "two or more" not in str(error.value)


def test_a_missing_list_is_asked_for_as_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"variants must be given; got nothing\. Add a \[\[variants\]\] table"):
        open_study(write_study(tmp_path, STUDY.partition("[[variants]]")[0]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('files = ["texts.txt"]', 'samples = ["latin"]', "corpus.samples must be of english,"),
        (
            'files = ["texts.txt"]',
            'files = ["texts.txt"]\nstore = "s"',
            "either samples and files, or a store; got both",
        ),
        ("seeds = [1, 2]", 'preset = "tiny"', "preset must be one of"),
        ('name = "no memory"', 'name = "memory"', "variants must differ from each other; got 'memory' 2 times"),
        ('without = ["model.memory"]', 'without = ["model.memry"]', "got 'model.memry'. Did you mean model.memory?"),
        ('without = ["model.memory"]', 'without = [""]', "without must name settings of the base; got ''"),
        ('without = ["model.memory"]', 'without = ["model.width.x"]', "of the base; got 'model.width.x'"),
        ('without = ["model.memory"]', "finetune.read = {carry = false}", "the study has no task"),
        ('without = ["model.memory"]', 'model.objective = "masked"\nmodel.attention_span = 3', "variant 'no memory':"),
        ("[[variants]]", '[[measures.tasks]]\nname = "t"\n[[variants]]', "one of sample, planted and train; got 0"),
        (
            "[[variants]]",
            '[[measures.tasks]]\nname = "t"\nplanted = { train_longest = 200 }\n[[variants]]',
            "planted.train_shortest must be at most planted.train_longest; got 300 and 200",
        ),
        ("[[variants]]", "[measures]\ncontexts = [8, 4]\n[[variants]]", "measures.contexts: context lengths must be"),
    ],
)
def test_a_mistake_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="The study has ") as error:
        open_study(write_study(tmp_path, STUDY.replace(old, new, 1)))
    assert message in str(error.value)


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"got 'clip-rang'\. Did you mean clip-range\?"):
        open_study("clip-rang")


def test_ready_studies_are_without_mistakes() -> None:
    names = ready_studies()
    assert len(names) == 6
    for name, title in names.items():
        study = open_study(name)
        assert study.title == title
        assert len(study.settings.seeds) >= 3
        assert study.settings.question


def test_equal_tokens_multiply_adds_and_parameters(tmp_path: Path) -> None:
    path = write_study(tmp_path, STUDY.replace('files = ["texts.txt"]', f'files = ["{tmp_path}/texts.txt"]'))
    plan = planned(path, tmp_path / "out")
    assert [variant.tokens for variant in plan.variants] == [64, 64]
    assert plan.variants[0].multiply_adds > plan.variants[1].multiply_adds
    big = ["budget.tokens=100000"]
    equal = resolved_variants(open_study(path, [*big, "budget.rule=multiply_adds"]).settings, plan.corpus)
    assert equal[1].multiply_adds == pytest.approx(equal[0].multiply_adds, rel=2e-3)
    assert equal[1].tokens > equal[0].tokens
    path.write_text(path.read_text() + 'model.positions = {kind = "shaw", clip_distance = 24}\n', encoding="utf-8")
    unequal = resolved_variants(open_study(path).settings, plan.corpus)
    equal = resolved_variants(open_study(path, ["budget.rule=parameters"]).settings, plan.corpus)
    assert abs(unequal[1].parameters - unequal[0].parameters) > 400
    assert abs(equal[1].parameters - equal[0].parameters) <= 4 * (2 * 16 + 1)
    assert equal[1].model.inner_width % 8 == 0
    path.write_text(path.read_text().replace("= 24}", "= 40}"), encoding="utf-8")
    with pytest.raises(ConfigError, match="variant 'no memory' has more at the smallest inner width"):
        resolved_variants(open_study(path, ["budget.rule=parameters"]).settings, plan.corpus)


def test_the_key_of_a_run_is_its_settings_its_data_and_its_seed(tmp_path: Path) -> None:
    text = STUDY.replace('files = ["texts.txt"]', f'files = ["{tmp_path}/texts.txt"]')
    path = write_study(tmp_path, text)
    runs = [cell.run for cell in planned(path, tmp_path / "out").cells]
    assert len(set(runs)) == 4
    assert [cell.run for cell in planned(path, tmp_path / "elsewhere").cells] == runs
    assert {cell.run for cell in planned(path, tmp_path / "out", ["seeds=[2, 3]"]).cells} & set(runs) == set(runs[2:])
    for other in ("budget.tokens=128", "base.train.learning_rate=0.02", "corpus.validation_share=0.7"):
        assert not {cell.run for cell in planned(path, tmp_path / "out", [other]).cells} & set(runs), other
    path.write_text(text.replace("[[variants]]", MEASURES.partition("[[paper]]")[0] + "[[variants]]", 1))
    cells = planned(path, tmp_path / "out", ["measures.validation_tokens=1000"]).cells
    assert [cell.run for cell in cells] != runs  # how much is validated in training is a setting of the run
