"""Texts and tables in memory, whatever holds them, are what files would give."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.api.tables import plain, rows_of
from segue.errors import DataError, SegueWarning

TEXTS = ["The room was clean.", "A dull film with a weak story."]


def log_probabilities(texts: Any, **options: Any) -> list[float]:
    return [row.log_probability for row in segue.score("model", texts, progress=False, **options)]


def test_texts_of_every_kind_are_scored_alike(place: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    expected = log_probabilities(TEXTS)
    table = pyarrow.table({"text": TEXTS, "n": [1, 2]})
    kinds: list[Any] = [
        iter(TEXTS),
        tuple(TEXTS),
        np.array(TEXTS),
        {"text": TEXTS},
        [{"text": text} for text in TEXTS],
        table,
        table["text"],
    ]
    for texts in kinds:
        assert log_probabilities(texts) == expected, type(texts)
    assert log_probabilities(table.rename_columns(["review", "n"]), field="review") == expected
    assert log_probabilities(TEXTS[0]) == expected[:1]
    assert log_probabilities([]) == []
    files = [Path("a.txt"), Path("b.txt")]
    for file, text in zip(files, TEXTS, strict=True):
        file.write_text(text, encoding="utf-8")
    assert log_probabilities(files) == expected
    assert log_probabilities(files[0]) == expected[:1]


def test_pandas_tables_are_read(place: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "stars": [5, None]})
    assert rows_of(frame, name="rows") == [{"text": TEXTS[0], "stars": 5.0}, {"text": TEXTS[1], "stars": None}]
    assert log_probabilities(frame) == log_probabilities(TEXTS) == log_probabilities(frame["text"])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (5, "texts must be a str, a Path, a table, or several of them; got an int"),
        (["a", None], "text 2 must be a str; got nothing"),
        (["a", Path("b")], "text 2 must be a str; got a PosixPath"),
        ([Path("texts.txt"), "a"], "texts and files must not be mixed"),
        ([{"review": "a"}], "row 1 of the texts must have the field 'text'; got 'review'"),
        ({"text": ["a"], "label": []}, "must have columns of equal length; got text: 1, label: 0"),
    ],
)
def test_what_are_no_texts_is_refused(texts: Any, message: str, place: Path) -> None:
    with pytest.raises(DataError, match=message):
        segue.score("model", texts, progress=False)


def test_rows_of_every_kind_are_answered_alike(place: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    model = segue.load_finetuned("sentiment")
    expected = model.predict(TEXTS, progress=False)
    assert [answer["prediction"] for answer in expected] == ["good", "bad"]
    Path("rows.csv").write_text("text\n" + "\n".join(TEXTS) + "\n", encoding="utf-8")
    for rows in ([{"text": text} for text in TEXTS], pyarrow.table({"text": TEXTS}), Path("rows.csv"), iter(TEXTS)):
        assert segue.predict(model, rows, progress=False) == expected
    renamed = segue.predict(model, {"review": TEXTS}, columns={"text": "review"}, progress=False)
    assert renamed == expected


def test_a_row_that_cannot_be_answered_says_why(place: Path) -> None:
    answers = segue.predict("sentiment", [{"text": TEXTS[0]}, {"text": ""}, {"text": None}], progress=False)
    assert answers[0]["prediction"] == "good"
    assert [list(answer) for answer in answers[1:]] == [["problem"], ["problem"]]
    assert "row 2" in answers[1]["problem"]


def test_a_table_in_memory_trains_the_same_model_as_its_file(place: Path) -> None:
    rows = [{"text": f"room {n}", "label": ["bad", "good"][n % 2]} for n in range(40)]
    lines = "".join(f"{row['text']},{row['label']}\n" for row in rows)
    Path("rows.csv").write_text("text,label\n" + lines, encoding="utf-8")
    settings = {"train": {"epochs": 1}}
    found = [
        segue.finetune("model", train, settings=settings, baselines=False, progress=False)
        for train in ("rows.csv", rows)
    ]
    a, b = (one.task_model.model.state_dict() for one in found)
    assert all((a[name] == b[name]).all() for name in a)
    assert found[0].metrics["valid"]["accuracy"] == found[1].metrics["valid"]["accuracy"]


def test_cells_become_plain_values() -> None:
    assert plain(np.int64(3)) == 3
    assert plain(float("nan")) is None
    assert plain(np.array([1.0, np.nan])) == [1.0, None]
    assert plain({"a": (np.float32(0.5),)}) == {"a": [0.5]}


def test_results_are_shown_in_one_line(place: Path) -> None:
    store = segue.prepare("texts.txt", "corpus", tokenizer="model/tokenizer", progress=False)
    assert repr(store) == f"<Store 'corpus': {store.length:,} tokens of 6 documents, vocabulary of 370>"
    session = segue.open("model")
    session.feed("The room was clean. ")
    assert repr(session).startswith(f"<Session: 2 layers of 32, vocabulary of 370, {session.tokens_read} tokens read")
    found = segue.evaluate("model", store, segment_length=16, progress=False)
    assert f"perplexity {found.perplexity:,.3f}" in repr(found)
    explained = segue.explain_text("model", "The room was clean.", ablate=False, progress=False)
    assert f"loss={explained.loss:.4f}" in repr(explained)
    words = segue.explain_answer("sentiment", "The room was clean.")
    assert "answer 'good'" in repr(words)
    for one in (store, session, found, explained, words):
        assert "\n" not in repr(one)
        assert len(repr(one)) < 200


def test_a_short_text_gets_a_vocabulary_that_fits(place: Path) -> None:
    for kind in ("unigram", "bpe"):
        with pytest.warns(SegueWarning, match=r"^the vocabulary has \d+ tokens instead of 8,000, because the text"):
            store = segue.prepare("texts.txt", kind, kind=kind, progress=False)
        assert 262 < store.vocabulary_size < 8000
    with pytest.raises(DataError, match=r"^vocabulary_size must be at most \d+ for these texts; got 9999\. Use \d+ or"):
        segue.prepare("texts.txt", "other", vocabulary_size=9999, progress=False)
