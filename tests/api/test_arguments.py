"""Arguments that no call can use are refused before any work, by name, as the command line refuses its options."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import segue
from segue.api.errors import python_errors
from segue.arguments import LARGEST, Number, checks_arguments
from segue.config import Section
from segue.config import settings as settings_of
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
    "sources": "a.csv",
    "events": "a.csv",
    "number": 1,
    "first": "0001",
    "second": "0001",
    "user": "ann",
    "person": "ann",
}
"""Arguments without defaults; none of the files exists, because the wrong argument is found first."""
LABELLED = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]


def call(function: str, **given: Any) -> None:
    parameters = inspect.signature(getattr(segue, function)).parameters.values()
    needed = {one.name: REQUIRED.get(one.name) for one in parameters if one.default is inspect.Parameter.empty}
    getattr(segue, function)(**needed | given)


def numbers() -> list[tuple[str, str, Number]]:
    """Every whole number with a lower limit, of every function."""
    found = []
    for function in FUNCTIONS:
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
    for function in FUNCTIONS:
        for name, hint in get_type_hints(getattr(segue, function), include_extras=True).items():
            plain = hint is int or (get_origin(hint) is not Annotated and int in get_args(hint))
            assert not plain or name in ("layer", "layers", "return"), f"{function}: {name}"


@pytest.mark.parametrize(("function", "name", "limit"), NUMBERS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_number_out_of_range_or_of_another_type_is_refused(function: str, name: str, limit: Number) -> None:
    assert limit.least is not None
    with pytest.raises(ConfigError, match=rf"^{name} must be {limit!r}; got {limit.least - 1}\. Use "):
        call(function, **{name: limit.least - 1})
    for wrong in (True, "3", 1.5, math.nan, math.inf):
        with pytest.raises(ConfigError, match=rf"^{name} must be a whole number.*; got {wrong!r}\. Use 1, for example"):
            call(function, **{name: wrong})
    for large in (LARGEST + 1, 10**5000):
        with pytest.raises(ConfigError, match=rf"^{name} must be (at most|from \d+ to) .*; got .{{1,50}}\. Use "):
            call(function, **{name: large})


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
        ("generate", {"count": 10**9}, "count must be from 1 to 1,000,000; got 1000000000"),
        ("generate", {"length_penalty": 10**400}, "length_penalty must be a number; got 1000"),
        ("prepare", {"workers": 10**6}, "workers must be from 1 to 1,024; got 1000000. Use such a number, or leave it"),
        ("run_study", {"workers": 2**62}, "workers must be from 1 to 1,024; got"),
        ("evaluate_speed", {"repeats": 2**40}, "repeats must be from 1 to 10,000; got"),
        ("evaluate_context", {"models": []}, "models must have at least one model; got none. Add one."),
        ("plot", {"runs": []}, "at least one run is needed to plot; got none."),
        ("learn_desk", {"sources": None}, "sources must be a file or a table; got None. Use a path, a list of dicts"),
        ("learn_desk", {"sources": ["a.csv", 3]}, "table 2 of sources must be a file or a table; got an int"),
        ("learn_desk", {"error": math.nan}, "error must be a finite number; got nan"),
        ("learn_desk", {"model": 3}, "model must be a str; got an int"),
        ("learn_monitor", {"sources": {}}, "sources must have columns of equal length; got no columns"),
        ("learn_monitor", {"sources": LABELLED, "entities": 3}, "entities must be a file or a table; got an int"),
        ("learn_recommender", {"events": 3}, "events must be a file or a table; got an int"),
        ("learn_recommender", {"kinds": {"buy": "3"}}, "kinds['buy'] must be a number; got '3'"),
        ("learn_recommender", {"settings": {}}, "settings must be a RecommenderSettings; got a dict. Use segue.Recomm"),
        ("feed_monitor", {"sources": []}, "sources must have at least one file or table; got none. Add one."),
        ("feed_monitor", {"sources": ""}, "sources must be the path of a file or folder; got an empty text"),
        ("feed_monitor", {"sources": "x" * 300}, "sources must be a path of at most 4,096 bytes"),
        ("feed_monitor", {"encoding": "a\0b"}, "the files must have an encoding that Python knows; got 'a\\x00b'"),
        ("feed_monitor", {"settings": 3}, "settings must be a MonitorSettings; got an int. Use segue.MonitorSettings("),
        ("alarms_in_monitor", {"state": "shut"}, "state must be open or acknowledged; got 'shut'. Use one of them"),
        ("report_monitor", {"day": "x"}, "a time must be written as 2024-05-01"),
        ("names_in_monitor", {"dismiss": "Hooli"}, "dismiss must be a list; got a str. Put it into a list."),
        ("recommend", {"wish": 3}, "wish must be a dict; got an int"),
        ("person_in_desk", {"person": None}, "person must be a str; got None"),
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
    ("learn_desk", "out"),
    ("learn_recommender", "out"),
    ("open_desk", "folder"),
    ("open_monitor", "folder"),
    ("recommend", "folder"),
    ("copy_monitor", "folder"),
    ("copy_recommender", "out"),
    ("trends_in_monitor", "prices"),
    ("report_monitor", "out"),
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


def refused(calls: list[tuple[Callable[[], Any], str]]) -> None:
    for one, message in calls:
        with pytest.raises(SegueError) as caught:
            one()
        assert message in str(caught.value)


def test_a_session_checks_its_arguments(place: Path) -> None:
    session: Any = segue.open("model")
    refused(
        [
            (lambda: list(session.stream(max_tokens="3")), "max_tokens must be a whole number; got '3'"),
            (lambda: list(session.stream(max_tokens=True)), "max_tokens must be a whole number; got True"),
            (lambda: list(session.stream(sampling=3)), "sampling must be a SamplingSettings; got an int"),
            (lambda: list(session.stream(None)), "prompt must be a str; got None"),
            (lambda: list(session.stream(stop=[3])), "stop[0] must be a str; got an int"),
            (lambda: list(session.write(choices="yes")), "choices must be a list; got a str. Put it into a list."),
            (lambda: session.search(beam=1.5), "beam must be a whole number; got 1.5"),
            (lambda: session.search(no_repeat=0), "no_repeat must be at least 1; got 0"),
            (lambda: session.search(length_penalty="1"), "length_penalty must be a number; got '1'"),
            (lambda: session.feed(None), "feed takes a text or parts of a text; got None"),
            (lambda: session.feed({"a": 1}), "feed takes a text or parts of a text; got a dict"),
            (lambda: session.feed("a", progress=3), "progress must be a function; got an int"),
            (lambda: session.feed_tokens(None), "feed_tokens takes a list of ids; got None. Use feed for a text."),
            (lambda: session.feed_tokens([3, None]), "feed_tokens takes a list of ids; got None in it"),
            (lambda: session.feed_tokens([1.5]), "feed_tokens takes a list of ids; got a float in it"),
            (lambda: session.score(3), "score takes a text; got an int"),
            (lambda: session.save(None), "path must be a path; got None. Give a path."),
            (lambda: session.save(""), "path must be the path of a file or folder; got an empty text"),
            (lambda: session.load(3), "path must be a path; got an int"),
            (lambda: session.shares_weights_with(3), "other must be a Session; got an int"),
            (lambda: segue.Session(None), "source must be a TextModel; got None. Open a model: segue.open(PATH)."),  # type: ignore
        ]
    )
    assert session.tokens_read == 0
    session.feed_tokens(np.array([3, 4]))
    assert session.tokens_read == 2


def test_a_store_checks_its_arguments(place: Path) -> None:
    store: Any = segue.prepare("texts.txt", "corpus", kind="characters", progress=False)
    refused(
        [
            (lambda: segue.Store.open(None), "path must be a path; got None. Give a path."),  # type: ignore[arg-type]
            (lambda: segue.Store.open("corpus", verify="no"), "verify must be True or False; got a str"),  # type: ignore
            (lambda: store.read(None, 3), "must be whole numbers; got None"),
            (lambda: store.read(0, 1.5), "must be whole numbers; got a float"),
        ]
    )


def test_settings_check_their_types() -> None:
    sampling: Any = segue.SamplingSettings
    table: Any = segue.TableSettings
    refused(
        [
            (lambda: sampling(temperature="1"), "temperature must be a number; got '1'. Use 1, for example."),
            (lambda: sampling(temperature=None), "temperature must be a number; got None. Give a number."),
            (lambda: sampling(temperature=True), "temperature must be a number; got True"),
            (lambda: sampling(temperature=10**400), "temperature must be a number; got 1000"),
            (lambda: sampling(temperature=math.nan), "temperature must be a finite number above 0; got nan"),
            (
                lambda: sampling(top_k=1.5),
                "top_k must be a whole number; got 1.5. Use 1, for example, or leave",
            ),
            (lambda: sampling(greedy=1), "greedy must be True or False; got an int"),
            (lambda: sampling(logit_bias=3), "logit_bias must be a dict of token ids and numbers; got an int"),
            (lambda: sampling(logit_bias={"a": 1.0}), "logit_bias must map token ids to numbers; got 'a': 1.0"),
            (lambda: sampling(logit_bias={3: None}), "logit_bias must map token ids to numbers; got 3: None"),
            (lambda: sampling(logit_bias={3: 10**400}), "logit_bias must be finite"),
            (lambda: table(delimiter=3), "the delimiter must be one character"),
            (lambda: table(malformed_share="x"), "malformed_share must be a number; got 'x'"),
            (lambda: table(encoding=None), "encoding must be a str; got None"),
            (lambda: table(quoting="yes"), "quoting must be True or False; got a str"),
            (lambda: table(columns="text"), "columns must be names of columns; got 'text'. Use a tuple of names."),
            (lambda: table(columns=(1, 2)), "columns must be names of columns; got (1, 2)"),
            (lambda: segue.MonitorSettings(false_alarms=0), "false_alarms must be above 0; got 0"),
            (lambda: segue.RecommenderSettings(layers="2", width=9), "layers must be a whole number; got '2'"),  # type: ignore
            (lambda: segue.RecommenderSettings(depth=2), "depth is not a setting"),  # type: ignore[call-arg]
        ]
    )
    with pytest.raises(ConfigError, match="The settings have 2 problems"):
        segue.RecommenderSettings(layers=0, width=7)
    assert sampling(top_k=np.int64(3), temperature=np.float32(0.5)).top_k == 3


@pytest.mark.parametrize("settings", [segue.MonitorSettings, segue.RecommenderSettings])
def test_problems_of_overrides_and_of_values_are_listed_together(settings: type[Section]) -> None:
    with pytest.raises(ConfigError, match="The settings have 2 problems"):
        settings_of(settings, {"depth": 1}, ["=3"])


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


def test_parts_of_a_list_are_checked_one_by_one_only_if_they_have_to_be() -> None:
    @checks_arguments
    def echo(texts: Sequence[str], *, anything: Sequence[Any] = (), numbers: Sequence[int] = ()) -> list[Any]:
        return [texts, anything, numbers]

    pair = (object(), None)
    assert echo(iter(["a", "b"]), anything=pair, numbers=np.array([1, 2])) == [["a", "b"], list(pair), [1, 2]]
    assert type(echo([], numbers=[np.int64(1)])[2][0]) is int
    with pytest.raises(ConfigError, match=r"texts\[1\] must be a str; got an int"):
        echo(["a", 3])
    with pytest.raises(ConfigError, match=r"numbers\[0\] must be a whole number"):
        echo([], numbers=["a"])
