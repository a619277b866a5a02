"""Tables as people have them: other names of columns, semicolons, several answers, long names."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import segue
from segue.apps.desk.improve import with_reviewed
from segue.apps.desk.knowledge import Asked, Knowledge, Topic, read_knowledge
from segue.apps.monitor.labelled import read_labelled
from segue.apps.recommend.tables import read_events
from segue.errors import DataError
from tests.command import command

ANSWERS = ("Under Orders.", "It costs 5 euro.", "Three days.", "By card.", "Use the link.", "Write to us.")


def table(path: Path, header: str, rows: Sequence[tuple[str, ...]], *, mark: str = ",") -> Path:
    path.write_text("\n".join(mark.join(row) for row in [tuple(header.split(",")), *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("heading", ["category", "label", "topic", "Topic "])
def test_a_heading_with_several_answers_loses_none(tmp_path: Path, heading: str) -> None:
    rows = [(f"question {place}", answer, f"group {place % 2}") for place, answer in enumerate(ANSWERS)]
    rows.append(("a complaint", "", "group 0"))
    known = read_knowledge([table(tmp_path / "faq.csv", f"question,answer,{heading}", rows)])
    assert {topic.answer for topic in known.topics} == {*ANSWERS, None}
    asked = {one.text: [known.topics[topic].answer for topic in one.topics] for one in known.asked}
    assert asked == {**{f"question {place}": [answer] for place, answer in enumerate(ANSWERS)}, "a complaint": [None]}
    assert "is not taken for the intent" in " ".join(known.notes)


def test_a_heading_with_one_answer_each_is_the_intent(tmp_path: Path) -> None:
    rows = [(f"question {place}", ANSWERS[place % 2], f"group {place % 2}") for place in range(6)]
    known = read_knowledge([table(tmp_path / "faq.csv", "question,answer,category", rows)])
    assert [topic.name for topic in known.topics] == ["group 0", "group 1"]
    assert known.notes == ()


def test_answers_that_are_not_given_are_told(tmp_path: Path) -> None:
    rows = [(f"where is parcel {place}", answer, "parcel") for place, answer in enumerate(ANSWERS)]
    rows += [("where is parcel 0", "Somewhere else.", "lost"), ("lost parcel", "x" * 20_001, "long")]
    done = command(
        "desk", "learn", table(tmp_path / "faq.csv", "question,answer,intent", rows), "--out", tmp_path / "desk",
        "--model", "none",
    )  # fmt: skip
    said = " ".join(done.stdout.split())
    assert "5 answers are not given" in said
    assert "'parcel'" in said
    assert "1 questions have several different answers" in said
    assert "'where is parcel 0'" in said
    assert "1 texts that were cut" in said
    report = (tmp_path / "desk" / "models" / "0001" / "report.md").read_text()
    assert "5 answers are not given" in report
    assert "several different answers" in report


def test_plural_names_of_columns_and_none_of_questions(tmp_path: Path) -> None:
    rows = [("Where is it?", "Under Orders."), ("How much?", "5 euro.")]
    known = read_knowledge([table(tmp_path / "faq.csv", "Questions,Answers", rows)])
    assert [one.text for one in known.asked] == ["Where is it?", "How much?"]
    assert known.notes == ()
    articles = read_knowledge([table(tmp_path / "other.csv", "title,answer", rows)])
    assert articles.asked == ()
    assert "other.csv has no column question" in articles.notes[0]


def test_names_of_topics_are_their_own(tmp_path: Path) -> None:
    begin = "How a long answer of the company begins, each time with the very same words, dear customer: "
    rows = [{"question": f"question {end}", "answer": begin + end} for end in ("one", "two", "three")]
    rows += [{"question": f"intent {end}", "answer": end, "intent": begin + end} for end in ("four", "five")]
    segue.learn_desk(rows, tmp_path / "desk", model="none", progress=False)
    desk = segue.open_desk(tmp_path / "desk")
    topics = desk.knowledge.topics
    assert len({topic.name for topic in topics}) == len(topics) == 5
    assert all(len(topic.name) <= 80 for topic in topics)
    assert [desk.named(topic.name) for topic in topics] == list(topics)
    more = with_reviewed(desk.knowledge, [(1, "new question", begin + "six", None, "c")])
    assert len({topic.name for topic in more.topics}) == 6


def test_an_accepted_answer_without_a_topic_changes_no_other_with_its_name() -> None:
    known = Knowledge(
        topics=(Topic(name="No.", answer="Never.", source="faq"),), asked=(Asked(text="q", topics=(0,), group="g"),)
    )
    more = with_reviewed(known, [(1, "ship to the moon?", "No.", None, "c")])
    assert [topic.answer for topic in more.topics] == ["Never.", "No."]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_marks_between_columns_are_read(tmp_path: Path, mark: str) -> None:
    rows = [("Where, please?", "Under Orders."), ("How much?", "5 euro.")]
    known = read_knowledge([table(tmp_path / "faq.csv", "question,answer", rows, mark=mark)])
    assert [(one.text, known.topics[one.topics[0]].answer) for one in known.asked] == rows
    events = table(tmp_path / "events.csv", "user,item,time", [("u", "i", "1"), ("u", "j", "2")], mark=mark)
    assert [one.item for one in read_events(events, Counter())] == ["i", "j"]
    labelled = table(tmp_path / "texts.csv", "text,sentiment", [("Up", "positive"), ("Down", "negative")], mark=mark)
    assert [row.text for row in read_labelled([labelled]).rows] == ["Up", "Down"]


def test_remedies_name_no_option_that_is_not_there(tmp_path: Path) -> None:
    rows = [("a", "b", "c", "d")] * 5 + [("a", "b")]
    with pytest.raises(DataError, match="malformed rows") as found:
        read_knowledge([table(tmp_path / "faq.csv", "question,answer", rows)])
    assert "--" not in str(found.value)
    assert "Mend the table" in str(found.value)
