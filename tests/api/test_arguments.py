"""Arguments that no call can use are refused before any work, by name, as the command line refuses its options."""

import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import segue
from segue.api.arguments import LARGEST, Number
from segue.api.errors import python_errors
from segue.errors import ConfigError, DataError, SegueError, kind_of
from tests.api.test_documented import FUNCTIONS

REQUIRED: dict[str, Any] = {
    "model": "model",
    "models": ["model", "model"],
    "source": "model",
    "data": "corpus",
    "texts": "a",
    "text": "a",
    "row": "a",
    "rows": "a",
    "runs": "run",
    "path": "model",
    "out": "out",
    "files": "a.txt",
    "config": "small-xlnet",
    "train": "a.csv",
    "pairs": "pairs.jsonl",
    "study": "memory",
    "folder": "model",
    "name": "owner/name",
    "license": "mit",
    "languages": ["en"],
}
"""Arguments without defaults; none of the files exists, because the wrong argument is found first."""
OWN = [name for name in FUNCTIONS if getattr(segue, name).__module__.startswith("segue.api.")]


def call(function: str, **given: Any) -> None:
    parameters = inspect.signature(getattr(segue, function)).parameters.values()
    needed = {one.name: REQUIRED.get(one.name) for one in parameters if one.default is inspect.Parameter.empty}
    getattr(segue, function)(**needed | given)


def numbers() -> list[tuple[str, str, Number]]:
    """Every whole number with a lower limit, of every function."""
    found = []
    for function in OWN:
        for name, hint in get_type_hints(getattr(segue, function), include_extras=True).items():
            for inner in (hint, *get_args(hint)):
                limits = [one for one in get_args(inner) if isinstance(one, Number)]
                if get_origin(inner) is Annotated and get_args(inner)[0] is int and limits:
                    found.append((function, name, limits[0]))
    return found


NUMBERS = numbers()


def test_every_whole_number_has_a_limit() -> None:
    limited = {(function, name) for function, name, _ in NUMBERS}
    assert len(limited) > 40
    for function in OWN:
        for name, hint in get_type_hints(getattr(segue, function), include_extras=True).items():
            plain = hint is int or (get_origin(hint) is not Annotated and int in get_args(hint))
            assert not plain or name in ("layer", "layers", "return"), f"{function}: {name}"


@pytest.mark.parametrize(("function", "name", "limit"), NUMBERS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_number_out_of_range_or_of_another_type_is_refused(function: str, name: str, limit: Number) -> None:
    assert limit.least is not None
    with pytest.raises(ConfigError, match=rf"^{name} must be at least {limit.least}; got {limit.least - 1}\. Use "):
        call(function, **{name: limit.least - 1})
    for wrong in (True, "3", 1.5, math.nan, math.inf):
        with pytest.raises(ConfigError, match=rf"^{name} must be a whole number.*; got {wrong!r}\. Use 1, for example"):
            call(function, **{name: wrong})
    with pytest.raises(ConfigError, match=f"^{name} must be at most"):
        call(function, **{name: LARGEST + 1})


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        ("evaluate", {"order": "x"}, "order must be forward, backward or random; got 'x'. Use one of them."),
        ("evaluate", {"order": "forwards"}, "Did you mean 'forward'?"),
        ("score", {"by": "word"}, "by must be token, line or document; got 'word'"),
        ("score", {"order": [0, "a"]}, "order[1] must be a whole number; got 'a'"),
        ("embed", {"pool": "x"}, "pool must be mean, last, first, max or cls; got 'x'"),
        ("embed", {"layer": "last"}, "layer must be a whole number; got 'last'"),
        ("prepare", {"kind": "x"}, "kind must be unigram, bpe, words, characters or bytes; got 'x'"),
        ("prepare", {"validation_share": 1}, "validation_share must be above 0 and below 1; got 1"),
        ("prepare", {"malformed_share": math.nan}, "malformed_share must be from 0 to 1; got nan"),
        ("tune", {"hours": 0}, "hours must be above 0; got 0"),
        ("tune", {"hours": math.inf}, "hours must be above 0; got inf"),
        ("generate", {"length_penalty": "1"}, "length_penalty must be a number; got '1'"),
        ("generate", {"bias": {"a": math.nan}}, "bias['a'] must be below inf; got nan"),
        ("generate", {"stop": "abc"}, "stop must be a list; got a str. Put it into a list."),
        ("generate", {"sampling": 3}, "sampling must be a SamplingSettings; got an int. Use segue.SamplingSettings("),
        ("predict", {"columns": "text"}, "columns must be a dict; got a str"),
        ("predict", {"columns": {"text": 3}}, "columns['text'] must be a str; got an int"),
        ("compare", {"models": "sentiment-en"}, "models must be a list; got a str. Put it into a list."),
        ("finetune", {"settings": "train.epochs=1"}, "settings must be a dict or a list; got a str"),
        ("finetune", {"settings": {3: 4}}, "settings (its keys) must be a str; got an int"),
        ("finetune", {"progress": "no"}, "progress must be True or False; got a str"),
        ("finetune", {"on_event": 3}, "on_event must be a function; got an int"),
        ("explain_answer", {"row": ["a"]}, "row must be a str or a dict; got a list"),
        ("explain_answer", {"model": None}, "model must be a fine-tuned model: a path, a name, or the result of"),
        ("export", {"what": "decoder"}, "what must be encoder or step; got 'decoder'"),
        ("open", {"device": "nowhere"}, "device must be one that torch can use here; got 'nowhere'"),
        ("plot", {"runs": []}, "at least one run is needed to plot; got none."),
        ("save_explanation", {"explanation": 3}, "explanation must be an Explanation or a WordReport; got an int"),
        ("evaluate_pairs", {"pairs": [("a",)]}, "a pair must have two sentences, (good, bad); pair 1 has 1."),
    ],
)
def test_a_wrong_argument_is_refused(function: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(SegueError) as caught:
        call(function, **given)
    assert message in str(caught.value)


PATHS = [
    ("inspect", "path"),
    ("evaluate", "model"),
    ("evaluate", "data"),
    ("convert", "source"),
    ("convert", "out"),
    ("prepare", "files"),
    ("prepare", "out"),
    ("plot", "runs"),
    ("plot", "out"),
    ("pretrain", "config"),
    ("pretrain", "out"),
    ("pretrain", "store"),
    ("load", "source"),
    ("open", "source"),
    ("finetune", "model"),
    ("finetune", "train"),
    ("load_finetuned", "model"),
    ("save_explanation", "out"),
    ("sample", "out"),
]


@pytest.mark.parametrize(("function", "name"), PATHS)
def test_what_names_no_file_is_refused(function: str, name: str) -> None:
    for wrong, said in [
        ("a\0b", "must be a path without NUL characters; got 'a\\x00b'"),
        ("x" * 300, "must be a path of at most 4,096 bytes, with names of at most 255; got 300 bytes"),
        ("y/" * 3000, "got 6,000 bytes"),
        ("", "must be the path of a file or folder; got an empty text"),
        (Path("a\0b"), "must be a path without NUL characters"),
    ]:
        with pytest.raises(SegueError) as caught:
            call(function, **{name: wrong})
        assert f"{name} " in str(caught.value)
        assert said in str(caught.value)
    for other in (3, b"a", 1.5):
        with pytest.raises(SegueError, match=f"^{name} must be .*; got {kind_of(other)}"):
            call(function, **{name: other})


def test_only_the_current_folder_is_asked_for_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a b c", encoding="utf-8")
    with pytest.raises(ConfigError, match="files must be the path of a file or folder; got an empty text"):
        segue.prepare("", "store", kind="characters", progress=False)
    assert segue.prepare(".", "store", kind="characters", progress=False).manifest.documents == 1


def test_the_error_about_a_loaded_model_is_short(place: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        segue.finetune(segue.load("model"), "a.csv")  # type: ignore[arg-type]
    assert str(caught.value).startswith("model must be a path or a name; got a LanguageModel. Use a folder, or a name")


def test_numbers_of_other_libraries_are_numbers() -> None:
    @python_errors
    def function(
        one: int, *, several: Mapping[str, float] | None = None, flag: bool = False, other: int | list[int] = 0
    ) -> tuple[Any, ...]:
        return one, several, flag, other

    found = function(np.int64(3), several={"a": np.float32(0.5)}, flag=np.True_, other=[3])  # type: ignore[arg-type, dict-item]
    assert found == (3, {"a": 0.5}, True, [3])
    assert [type(one) for one in found[:3]] == [int, dict, bool]
    with pytest.raises(TypeError, match="unexpected keyword argument 'lane'"):
        function(3, lane=1)  # type: ignore[call-arg]


def test_an_option_is_named_on_the_command_line() -> None:
    with pytest.raises(ConfigError) as caught:
        segue.evaluate("model", "corpus", segment_length=0)
    assert str(caught.value).startswith("segment_length must be at least 1")
    assert caught.value.on_command_line.startswith("--segment-length must be at least 1")


def test_a_session_and_settings_check_theirs(place: Path) -> None:
    session = segue.open("model")
    calls: list[tuple[Any, str]] = [
        (lambda: list(session.stream(max_tokens="3")), "max_tokens must be a whole number; got '3'"),  # type: ignore
        (lambda: list(session.stream(max_tokens=True)), "max_tokens must be a whole number; got True"),
        (lambda: list(session.stream(sampling=3)), "sampling must be a SamplingSettings; got an int"),  # type: ignore
        (lambda: session.search(beam=1.5), "beam must be a whole number; got 1.5"),  # type: ignore[arg-type]
        (lambda: session.feed(None), "feed takes a text or parts of a text; got None"),  # type: ignore[arg-type]
        (lambda: session.score(3), "score takes a text; got an int"),  # type: ignore[arg-type]
        (lambda: segue.TableSettings(delimiter=3), "the delimiter must be one character"),  # type: ignore[arg-type]
        (lambda: segue.TableSettings(malformed_share="x"), "must be a number; got 'x'"),  # type: ignore[arg-type]
    ]
    for one, message in calls:
        with pytest.raises(SegueError, match=message):
            one()


# ------------------------------------------------------------------------------------------------- rows and words


def test_the_row_at_fault_is_named(place: Path) -> None:
    with pytest.raises(DataError, match=r"^text 2 must be a str; got nothing\. "):
        segue.predict("sentiment", ["", None, "good"], progress=False)
    with pytest.raises(DataError, match=r"^rows must have at least one row; got none\. "):
        segue.predict("sentiment", [], progress=False)


def test_the_name_of_a_table_is_no_text(place: Path) -> None:
    with pytest.raises(DataError, match=r"^rows\.csv must exist; got no such file\. .* use \['rows\.csv'\]\.$"):
        segue.predict("sentiment", "rows.csv", progress=False)
    Path("rows.csv").write_text("text\nA dull film.\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a str that names the file rows\.csv\. Use Path\('rows\.csv'\)\.$"):
        segue.predict("sentiment", "rows.csv", progress=False)
    for text in (["rows.csv"], "A dull film in rows.csv", Path("rows.csv")):
        assert "prediction" in segue.predict("sentiment", text, progress=False)[0]


def test_the_columns_of_a_row_are_found_as_in_a_table(place: Path) -> None:
    expected = segue.explain_answer("sentiment", "The room was clean.")
    cases: list[tuple[dict[str, Any], dict[str, str] | None]] = [
        ({"review": "The room was clean.", "id": 7}, None),
        ({"a": "The room was clean."}, {"text": "a"}),
    ]
    for row, columns in cases:
        found = segue.explain_answer("sentiment", row, columns=columns)
        assert (found.answer, found.first()) == (expected.answer, expected.first())
    with pytest.raises(DataError, match=r"""got 'a'\. Name one of them with columns=\{"text": NAME\}\.$"""):
        segue.explain_answer("sentiment", {"a": "The room was clean."})


def test_the_words_behind_an_answer_are_saved(place: Path) -> None:
    report = segue.explain_answer("sentiment", "The room was clean.")
    alone = segue.save_explanation("alone.html", report).read_text(encoding="utf-8")
    titled = segue.Explanation(name="classify", text="The room was clean .", words=report)
    assert "clean" in alone
    assert abs(len(alone) - len(segue.save_explanation("b.html", titled).read_text(encoding="utf-8"))) < 20
