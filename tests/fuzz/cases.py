"""Cases: a command that would work in the world, then made worse in its words, its files and its surroundings."""

import os
import random
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from segue.cli.app import VERBS, command_of

FINETUNE = ["train.epochs=1", "train.restarts=0", "read.segment_length=32"]
COMMANDS: dict[str, list[list[str]]] = {
    "models": [["models"], ["models", "gpt"]],
    "doctor": [["doctor", "small.toml"], ["doctor", "run/last"], ["doctor", "tuned/best"], ["doctor", "config.toml"]],
    "pretrain": [
        ["pretrain", "config.toml", "--out", "new"],
        ["pretrain", "config.toml", "train.steps=4", "--out", "run"],
        ["pretrain", "config.toml", "model.objective=permutation", "data.permutation.pairs=false", "--out", "new"],
    ],
    "plan": [["plan", "config.toml"], ["plan", "config.toml", "data.lanes=4"]],
    "plot": [["plot", "run", "--out", "plot.png"], ["plot", "run", "run"]],
    "evaluate": [
        ["evaluate", "run/last", "store-valid", "--limit", "40"],
        ["evaluate", "run/last", "store", "--limit", "40", "--sweep", "memory_length=2,4", "--plot", "sweep.png"],
        ["evaluate", "run/last", "store", "--limit", "40", "--recl", "--lengths", "4,8"],
        ["evaluate", "run/last", "--speed", "--lengths", "8", "--repeats", "1"],
        ["evaluate", "xlnet", "store", "--limit", "20", "--segment-length", "8", "--pseudo"],
        ["evaluate", "xlnet", "--pairs", "table.jsonl", "--column", "good=text", "--column", "bad=label"],
    ],
    "demo": [["demo", "--out", "text.txt", "--steps", "1"]],
    "finetune": [
        ["finetune", "xlnet", "--task", "classify", "--train", "table.csv", "--out", "new", *FINETUNE],
        ["finetune", "model", "--task", "classify", "--train", "table.parquet", "--out", "new", *FINETUNE],
        ["finetune", "xlnet", "--task", "tag", "--train", "table.conll", "--out", "new", *FINETUNE],
        ["finetune", "xlnet", "--task", "answer", "--train", "squad.json", "--out", "new", *FINETUNE],
        ["finetune", "hf", "--task", "classify", "--train", "table.json", "--out", "new", *FINETUNE],
        ["finetune", "xlnet", "--task", "regress", "--train", "table.tsv", "--valid", "table.jsonl", "--out", "new"],
        ["finetune", "xlnet"],
    ],
    "tune": [["tune", "xlnet", "--train", "table.csv", "--out", "study", "--trials", "1", *FINETUNE]],
    "study": [["study"], ["study", "study.toml", "--out", "studies", "--budget", "16", "--workers", "1"]],
    "predict": [
        ["predict", "tuned", "table.csv"],
        ["predict", "tuned/best", "table.jsonl", "--out", "answers.csv"],
        ["predict", "tagger", "table.conll", "--out", "answers.jsonl"],
        ["predict", "tuned", "-"],
        ["predict", "tuned", "table.parquet", "--to", "tsv"],
    ],
    "score": [
        ["score", "model", "text.txt"],
        ["score", "model", "-", "--by", "line"],
        ["score", "xlnet", "text.txt.gz", "--out", "scores.parquet"],
        ["score", "run/last", "table.jsonl", "--by", "token", "--out", "scores.csv"],
    ],
    "embed": [
        ["embed", "model", "text.txt", "--out", "vectors.npy"],
        ["embed", "xlnet", "text.txt.zst", "--out", "vectors.parquet", "--by", "line", "--text"],
        ["embed", "model", "-", "--out", "vectors.jsonl"],
    ],
    "generate": [
        ["generate", "model", "The room", "--max-tokens", "4"],
        ["generate", "model", "-", "--max-tokens", "4", "--json"],
        ["generate", "model", "The", "--max-tokens", "3", "--load", "session", "--save", "session2"],
        ["generate", "model", "The", "--max-tokens", "3", "--beam", "2", "--n-best", "2"],
        ["generate", "model", "--max-tokens", "3", "--chat"],
        ["generate", "xlnet", "The", "--max-tokens", "2"],
        ["generate", "hf-plain", "The", "--max-tokens", "2"],
    ],
    "infill": [["infill", "xlnet", "The ____ was clean"], ["infill", "xlnet", "The ____ was ____", "--json"]],
    "compare": [
        ["compare", "model", "xlnet", "--data", "text.txt"],
        ["compare", "tuned", "tuned/best", "--data", "table.csv", "--json"],
    ],
    "explain": [
        ["explain", "model", "The room was clean", "--out", "page.html"],
        ["explain", "xlnet", "text.txt", "--order", "random", "--task-model", "tuned", "--out", "page.html"],
        ["explain", "model", "-", "--layer", "1", "--show", "position", "--out", "head.png"],
    ],
    "serve": [
        ["serve", "model", "--port", "0", "--check"],
        ["serve", "model", "tuned/best", "other=xlnet", "--port", "0", "--set", "max_tokens=10", "--check"],
    ],
    "desk": [
        ["desk", "learn", "table.csv", "--model", "none", "--out", "new"],
        ["desk", "learn", "table.jsonl", "table.tsv", "--model", "xlnet", "--out", "new", "--error", "0.1"],
        ["desk", "ask", "model", "where is my parcel"],
        ["desk", "run", "model", "--port", "0", "--check"],
        ["desk", "back-up", "model", "--out", "new"],
        ["desk", "person", "model", "ann", "--delete"],
        ["desk", "roll-back", "run"],
    ],
    "monitor": [
        ["monitor", "learn", "table.csv", "--out", "new"],
        ["monitor", "learn", "table.jsonl", "table.tsv", "--entities", "table.csv", "--out", "new"],
        ["monitor", "tell", "model", "profit rose"],
        ["monitor", "read", "model", "table.csv"],
        ["monitor", "run", "model", "--port", "0", "--check"],
        ["monitor", "export", "model", "--out", "new.csv"],
        ["monitor", "report", "run", "--out", "new.html"],
        ["monitor", "back-up", "model", "--out", "new"],
        ["monitor", "person", "model", "ann", "--delete"],
        ["monitor", "roll-back", "run"],
    ],
    "recommend": [
        ["recommend", "learn", "--events", "events.csv", "--out", "new", "--set", "epochs=1"],
        ["recommend", "learn", "--events", "table.jsonl", "--items", "table.tsv", "--out", "new", "--kind", "buy=2"],
        ["recommend", "suggest", "model", "ann"],
        ["recommend", "run", "model", "--port", "0", "--check"],
        ["recommend", "improve", "run"],
        ["recommend", "compare", "model", "0001", "0002"],
        ["recommend", "back-up", "model", "--out", "new"],
        ["recommend", "person", "model", "ann", "--delete"],
        ["recommend", "roll-back", "run"],
    ],
    "tour": [["tour"]],
    "prepare": [
        ["prepare", "text.txt", "--out", "new", "--kind", "bytes", "--workers", "1"],
        ["prepare", "text.txt", "--out", "store", "--kind", "words", "--replace", "--validation-share", "0.5"],
        ["prepare", "table.csv", "table.jsonl", "table.parquet", "--out", "new", "--tokenizer", "store"],
        ["prepare", "text.txt.gz", "text.txt.xz", "--out", "new", "--vocabulary-size", "380"],
        ["prepare", ".", "--out", "new", "--kind", "characters", "--malformed-share", "1"],
    ],
    "sample": [["sample"], ["sample", "english", "--out", "english.txt"], ["sample", "nonsense"]],
    "push": [["push", "model", "me/model", "--dry-run"], ["push", "run", "me/model", "--dry-run"]],
    "package": [["package", "run", "new", "--license", "mit", "--language", "en"]],
    "convert": [
        ["convert", "hf", "new"],
        ["convert", "plain", "new", "--to", "hf"],
        ["convert", "tf", "new", "--set", "model.memory.length=4"],
        ["convert", "state.pt", "new"],
        ["convert", "hf-plain", "new", "--to", "tf", "--no-compare"],
        ["convert", "plain", "hf", "--to", "original", "--replace"],
    ],
    "export": [
        ["export", "model", "--out", "new", "--what", "step", "--format", "torch"],
        ["export", "missing", "--out", "new", "--what", "encoder"],
    ],
    "inspect": [
        ["inspect", name]
        for name in [
            "hf",
            "tf",
            "state.pt",
            "legacy.pt",
            "model",
            "run",
            "store",
            "session",
            "model/tokenizer",
            "tuned/best",
            "vocab.txt",
        ]
    ],
}
"""For every verb, commands that work. A test compares the names with the verbs that there are."""

SLOW = {"tour", "export", "tune", "study", "demo"}
"""Their work takes seconds: they are tried less often."""
WORK = {"--max-tokens", "--steps", "--trials", "--hours", "--lengths", "--repeats", "--count", "--beam", "--n-best"}
WORK |= {"--budget", "--limit", "--sweep", "--workers", "--sample-characters", "--vocabulary-size", "--alternatives"}
"""Options whose number is an amount of work: large ones would only be long."""

NUMBERS = ["0", "1", "-1", "2", "3.5", "nan", "inf", "-inf", "1e400", "1e-400", "0x10", "", "ten", "１", "1_0"]
LARGE = ["2147483648", "9223372036854775808", "9" * 400, "1e30", "1048576"]
WORDS = [
    "",
    " ",
    "-",
    "--",
    "=",
    ".",
    "..",
    "/",
    "~",
    "a" * 300,
    "b" * 5000,
    "\u202eabc",
    "naïve 中文 🎵",
    "\udcff\udcfe",
]
WORDS += [
    "*",
    "[",
    "${HOME}",
    "%s%n",
    "[bold]",
    "[/]",
    "\x1b[31m",
    "a\nb",
    "\t",
    "null",
    "me/../..",
    "datasets:x",
    "{}",
]
PATHS = ["/dev/null", "/dev/full", "/dev/zero", "fifo", "missing", "missing/x", "text.txt/x", "self", "noaccess"]
PATHS += ["empty", "emptydir", "/proc/self/mem", "/", "socket"]
KEYS = ["model.width", "model.num_layers", "model.memory.length", "data.lanes", "data.segment_length", "train.steps"]
KEYS += ["model.vocabulary.size", "train.seed", "model.objective", "model.positions.kind", "data.store", "nonsense"]
KEYS += [
    "train.batch_size",
    "read.segment_length",
    "read.pool",
    "task.threshold",
    "train.learning_rate",
    "model",
    "a.b.c",
]
NOBODY = 65534
VALUES = [*NUMBERS, *LARGE, "[]", "{}", "[1,2]", '"x"', "true", "permutation", "masked", "shaw", "[" * 500, "1.0"]


@dataclass
class Case:
    """What is done; the world is copied before."""

    seed: int
    verb: str
    arguments: list[str]
    spoil: list[Callable[[Path], None]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """What was done to the files, in words."""
    stdin: bytes = b""
    stdout: str = "file"
    """Or `full`, or `closed`, or `pipe`: whoever reads it has gone."""
    file_limit: int | None = None
    """Bytes that a file may have: a disk that is full."""
    user: int | None = None
    """Who runs it, instead of root, with some of the files not theirs to read or write."""
    memory_limit: int | None = None
    """Bytes of address space besides what is taken at the start."""

    def __str__(self) -> str:
        more = {key: getattr(self, key) for key in ("stdout", "file_limit", "user", "memory_limit")}
        more = {key: value for key, value in more.items() if value not in (None, "file")}
        return f"seed {self.seed}: segue {self.arguments!r} {self.told} {more} stdin {self.stdin[:40]!r}"


def verbs() -> Mapping[str, list[str]]:
    """Every verb of the application, with its options."""
    found = {}
    for name in VERBS:
        command = command_of(name)
        inner = getattr(command, "commands", {}).values()
        parameters = [parameter for one in (command, *inner) for parameter in one.params]
        found[name] = [option for one in parameters for option in one.opts if option.startswith("--")]
    return found


def make_case(seed: int, verb: str | None = None) -> Case:
    """The case of this number."""
    chance = random.Random(seed)
    if verb is None:
        verb = chance.choice(list(COMMANDS))
        if verb in SLOW and chance.random() < 0.8:
            verb = chance.choice([name for name in COMMANDS if name not in SLOW])
    case = Case(seed=seed, verb=verb, arguments=list(chance.choice(COMMANDS[verb])))
    changes = chance.choice([0, 0, 0, 1, 1, 2, 3])  # where the words are right, more of the work is done
    _worsen_arguments(case, chance, changes=changes)
    if verb == "demo":  # where it has a place to work it takes minutes
        place = chance.choice(["text.txt", "/dev/null", "fifo", "text.txt/x", "self", "/proc/x", "a" * 300])
        case.arguments = ["demo", "--steps", chance.choice([*NUMBERS, *LARGE]), "--out", place]
    if (verb == "serve" or "run" in case.arguments) and "--check" not in case.arguments:  # it would not end
        case.arguments.append("--check")
    for _ in range(chance.choice([0, 0, 1, 1, 2]) if changes else chance.choice([1, 1, 1, 2])):
        _worsen_files(case, chance)
    case.stdin = chance.choice(
        [b"", b"text\nThe room\n", b"The room\n\nwas\n", chance.randbytes(300), b"\xff\xfe" * 50]
    )
    kind = chance.random()
    if kind < 0.05:
        case.stdout = chance.choice(["full", "closed", "pipe"])
    elif kind < 0.13:
        case.file_limit = chance.choice([0, 1, 100, 1000, 4096, 20000])
    elif kind < 0.23 and os.getuid() == 0:
        case.user = NOBODY
    elif kind < 0.26:
        case.memory_limit = chance.choice([2**24, 2**26, 2**28])
    return case


def _worsen_arguments(case: Case, chance: random.Random, *, changes: int) -> None:
    options = verbs()[case.verb]
    for _ in range(changes):
        words = case.arguments
        what = chance.random()
        if what < 0.45 and len(words) > 1:
            at = chance.randrange(1, len(words))
            large = words[at - 1] not in WORK and "steps" not in words[at] and "epochs" not in words[at]
            words[at] = _word(chance, large=large)
        elif what < 0.75 and options:
            option = chance.choice(options)
            words += [option] if chance.random() < 0.3 else [option, _word(chance, large=option not in WORK)]
        elif what < 0.9:
            words.append(f"{chance.choice(KEYS[:-1])}={chance.choice([v for v in VALUES if v not in LARGE])}")
            if "steps" not in words[-1] and chance.random() < 0.3:
                words[-1] = f"{chance.choice([k for k in KEYS if 'steps' not in k])}={chance.choice(LARGE)}"
        elif len(words) > 1:
            del words[chance.randrange(1, len(words))]


def _word(chance: random.Random, *, large: bool) -> str:
    worlds = ["model", "xlnet", "run", "run/last", "store", "tuned", "hf", "tf", "session", "config.toml", "state.pt"]
    worlds += ["table.csv", "table.parquet", "text.txt", "text.txt.gz", "model/tokenizer", "table.conll", "squad.json"]
    return chance.choice(chance.choice([WORDS, PATHS, NUMBERS, worlds, worlds] + ([LARGE] if large else [])))


# ------------------------------------------------------------------------------------------------------------ files


def _worsen_files(case: Case, chance: random.Random) -> None:
    """Changes a file that the command reads, or one that is anywhere."""
    seed, near = chance.randrange(2**32), chance.random() < 0.85
    named = [word for word in case.arguments if word and not word.startswith("-")]

    def spoil(world: Path) -> None:
        inner = random.Random(seed)
        files = sorted(path for path in world.rglob("*") if path.is_file() and not path.is_symlink())
        roots = [(world / word) for word in named if len(word) < 200 and "\0" not in word]
        close = [path for path in files if any(path == root or root in path.parents for root in roots)]
        pool = close if near and close else files
        if pool:
            path = inner.choice(pool)
            case.told.append(f"{path.relative_to(world)}: {_change(path, files, inner)}")

    case.spoil.append(spoil)


def _change(path: Path, files: Sequence[Path], chance: random.Random) -> str:
    data = path.read_bytes()
    kind = chance.choice(["cut", "flip", "flip", "insert", "empty", "noise", "other", "gone", "folder", "fifo", "loop"])
    kind = chance.choice([kind, kind, "number", "nest", "text"])
    match kind:
        case "cut":
            path.write_bytes(data[: chance.randrange(len(data) + 1)])
        case "flip":
            changed = bytearray(data)
            for _ in range(chance.choice([1, 1, 5, 50])):
                if changed:
                    changed[chance.randrange(len(changed))] = chance.randrange(256)
            path.write_bytes(changed)
        case "insert":
            at = chance.randrange(len(data) + 1)
            path.write_bytes(data[:at] + chance.randbytes(chance.choice([1, 8, 1000])) + data[at:])
        case "empty":
            path.write_bytes(b"")
        case "noise":
            path.write_bytes(chance.randbytes(chance.choice([1, 100, 5000])))
        case "other":
            path.write_bytes(chance.choice(files).read_bytes())
        case "gone":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case "fifo":
            path.unlink()
            os.mkfifo(path)
        case "loop":
            path.unlink()
            path.symlink_to(path.name)
        case "number":
            path.write_bytes(_other_number(data, chance))
        case "nest":
            path.write_bytes(
                chance.choice([b"[" * 5000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"a." * 3000 + b"a = 1"])
            )
        case "text":
            path.write_bytes(
                chance.choice([b"{}", b"[]", b"null", b"5", b'"x"', b'{"a": 1}\n', b"a = 1\n", b"\n" * 99])
            )
    return kind


def _other_number(data: bytes, chance: random.Random) -> bytes:
    """Another number in the place of one that the file names."""
    places = [at for at in range(1, min(len(data), 5000)) if data[at : at + 1].isdigit()]
    if not places:
        return data
    at = chance.choice(places)
    end = at
    while data[end : end + 1].isdigit():
        end += 1
    number = chance.choice(
        [b"0", b"-1", b"1e400", b"NaN", b"9" * 20, b"9" * 5000, b"2147483647", b"null", b"[]", b'"x"']
    )
    return data[:at] + number + data[end:]


def lay_out(case: Case, world: Path, place: Path) -> None:
    """The copy in which the case is tried."""
    shutil.copytree(world, place, symlinks=True)
    (place / "small.toml").write_text("[model]\nwidth = 16\nnum_heads = 2\n[model.vocabulary]\nsize = 9\n")
    os.mkfifo(place / "fifo")
    (place / "self").symlink_to("self")
    (place / "empty").write_bytes(b"")
    (place / "emptydir").mkdir()
    (place / "noaccess").mkdir()
    for spoil in case.spoil:
        spoil(place)
    if os.getuid() == 0:
        chance = random.Random(case.seed)
        own = case.user is None or chance.random() < 0.5
        for path in [place, *place.rglob("*")]:
            if own:
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        _take_away(case, place, chance)


def _take_away(case: Case, place: Path, chance: random.Random) -> None:
    """Some of the rights to read and to write."""
    (place / "noaccess").chmod(0)
    if case.user is not None:
        for path in [place, *place.rglob("*")]:
            if path.is_symlink():
                continue
            if chance.random() < 0.05:
                path.chmod(0)
            elif stat.S_ISDIR(path.stat().st_mode) and chance.random() < 0.05:
                path.chmod(0o555)
