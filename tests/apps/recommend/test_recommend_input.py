"""Tables as others write them: formats, encodings, missing cells, odd values, and too little of everything."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.recommend.build import material
from segue.apps.recommend.ranking import parse_wish
from segue.apps.recommend.store import RECOMMEND, add_events
from segue.apps.recommend.tables import MOST_KINDS, Event, parse_kinds, read_events, read_items, to_event, to_item
from tests.apps.recommend.shop import events, items, quick
from tests.command import command

FEW = ("epochs=1", "width=8", "segment=8", "memory=8", "vectors=ids")


def learned(rows: Sequence[dict[str, Any]], out: Path, **more: Any) -> dict[str, Any]:
    """The numbers of a recommender that has learned as little as possible."""
    chosen = more.pop("settings", quick(epochs=1, width=8, vectors="ids"))
    return segue.learn_recommender(rows, out, settings=chosen, progress=False, **more).numbers


def said(path: Path, *more: object) -> tuple[int, str]:
    """What the command says of a table of events."""
    settings = [part for one in FEW for part in ("--set", one)]
    done = command("recommend", "learn", "--events", path, "--out", path.parent / "rec", *settings, *more, width=500)
    return done.returncode, done.stdout + done.stderr


def test_csv_jsonl_and_parquet_are_the_same_table(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows: list[dict[str, Any]] = [
        {"user": n % 3, "item": 10 + n % 4, "time": 1000 + n, "kind": "buy" if n % 2 else "view"} for n in range(9)
    ]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    floats = [row | {"user": float(row["user"]), "item": float(row["item"])} for row in rows]
    parquet.write_table(pyarrow.Table.from_pylist(floats), tmp_path / "b.parquet")
    found = [list(read_events(tmp_path / name, Counter())) for name in ("a.csv", "a.jsonl", "a.parquet", "b.parquet")]
    assert found[0][1] == Event(user="1", item="11", time=1001.0, kind="buy")
    assert all(one == found[0] for one in found)


def test_missing_cells() -> None:
    nan = float("nan")
    assert isinstance(to_event({"user": nan, "item": "a"}, otherwise=0.0), str)
    item = to_item({"id": 7.0, "title": nan, "price": nan, "tags": None})
    assert not isinstance(item, str)
    assert (item.id, item.title, item.price, item.tags) == ("7", "", None, ())
    assert isinstance(to_event({"user": "a", "item": "b", "time": 10**400}, otherwise=0.0), str)
    priceless = to_item({"id": "x", "price": 10**400})
    assert not isinstance(priceless, str)
    assert priceless.price is None
    negative = to_item({"id": "x", "price": -1})
    assert not isinstance(negative, str)
    assert negative.price is None


def test_times_of_some_rows(tmp_path: Path) -> None:
    """A row without a time has none to stand at if others have dates; without any dates, rows are in order."""
    (tmp_path / "some.csv").write_text("user,item,time\na,x,\na,y,1700000000\na,z,\n")
    problems: Counter[str] = Counter()
    assert [one.item for one in read_events(tmp_path / "some.csv", problems)] == ["y"]
    assert list(problems.values()) == [2]
    (tmp_path / "none.csv").write_text("user,item,time\na,x,\na,y,\n")
    problems.clear()
    assert [(one.item, one.time) for one in read_events(tmp_path / "none.csv", problems)] == [("x", 0.0), ("y", 1.0)]
    assert not problems


def test_dates_without_separators(tmp_path: Path) -> None:
    """20240501 is a date where most times of this form are dates; elsewhere it is a number."""

    def read(*times: object) -> tuple[list[float], int]:
        rows = "".join(f"a,x,{time}\n" for time in times)
        (tmp_path / "a.csv").write_text(f"user,item,time\n{rows}")
        problems: Counter[str] = Counter()
        return [one.time for one in read_events(tmp_path / "a.csv", problems)], sum(problems.values())

    first = 1714521600.0  # 2024-05-01
    assert read("20240501", "20240502") == ([first, first + 86_400], 0)
    assert read("2024-05-01", "20240502", "20240503") == ([first, first + 86_400, first + 2 * 86_400], 0)
    assert read("20240501", "20240502", "20241332") == ([first, first + 86_400], 1)
    numbers = list(range(20_239_990, 20_240_500))
    assert read(*numbers) == ([float(one) for one in numbers], 0)
    assert read("1000", "1001") == ([1000.0, 1001.0], 0)


def test_ids_without_control_characters() -> None:
    for id in ("a\nb", "a\x7f", "a\u2028b"):
        assert "control characters" in str(to_event({"user": id, "item": "b", "time": 1}, otherwise=None))
        assert "control characters" in str(to_event({"user": "a", "item": id, "time": 1}, otherwise=None))
        assert "control characters" in str(to_item({"id": id}))
    event = to_event({"user": " a ", "item": "b\n", "time": 1}, otherwise=None)
    assert isinstance(event, Event)
    assert (event.user, event.item) == ("a", "b")


def test_many_events_at_the_latest_time_are_told(tmp_path: Path) -> None:
    rows = "".join(f"u{n % 5},i{n % 7},{'2024-05-01' if n < 20 else '2024-05-02'}\n" for n in range(60))
    (tmp_path / "a.csv").write_text(f"user,item,time\n{rows}")
    code, text = said(tmp_path / "a.csv")
    assert code == 0, text
    assert "Too many events share the latest time (40 of 60) to hold any out" in text
    assert "Too many events share" in (tmp_path / "rec" / "models" / "0001" / "report.md").read_text()


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("client,article\n1,2\n")
    with pytest.raises(segue.SegueError, match=r"user and item; got client, article.*accepted names of user"):
        list(read_events(tmp_path / "a.csv", Counter()))
    with pytest.raises(segue.SegueError, match=r"with id; got client, article"):
        list(read_items(tmp_path / "a.csv", Counter()))


def test_an_encoding_can_be_given(tmp_path: Path) -> None:
    rows = "".join(f"用户{n % 5},物品{n % 7},{n},浏览\n" for n in range(60))
    (tmp_path / "a.csv").write_text(f"user,item,time,kind\n{rows}", encoding="gb18030")
    code, text = said(tmp_path / "a.csv")
    assert code == 2
    assert "--encoding gb18030" in text
    code, text = said(tmp_path / "a.csv", "--encoding", "gb18030")
    assert code == 0, text
    assert segue.person_in_recommender(tmp_path / "rec", "用户1")["events"]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("", "must have rows; got an empty file"),
        ("user,item\n", "must have rows"),
        ("user,item,time\nu,i,1\n", "at least two events"),
        (f"user,item\n{'x' * 10_000_000},i\n", "got none: 1 rows skipped (ids of users and items must have at most"),
    ],
)
def test_too_little_is_refused(tmp_path: Path, rows: str, text: str) -> None:
    (tmp_path / "a.csv").write_text(rows)
    code, found = said(tmp_path / "a.csv")
    assert code == 2
    assert text in found
    assert not (tmp_path / "rec").exists()


@pytest.mark.parametrize(
    ("users", "things", "step"), [(1, 4, 1.0), (4, 1, 1.0), (4, 7, 0.0)], ids=["one user", "one item", "one moment"]
)
def test_few_of_a_kind_can_be_learned(tmp_path: Path, users: int, things: int, step: float) -> None:
    rows = [{"user": f"u{n % users}", "item": f"i{n % things}", "time": step * n} for n in range(40)]
    numbers = learned(rows, tmp_path / "rec")
    assert (numbers["users"], numbers["items"]) == (users, things)
    assert segue.recommend(tmp_path / "rec", "u0", count=3, why=True, wish={"seen": True})
    assert segue.recommend(tmp_path / "rec", "nobody", count=1)


def test_weights_and_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    rows = events(users=6)
    for kinds in ({"view": float("nan")}, {"view": -1.0}):
        with pytest.raises(segue.SegueError, match=r"weight of a kind must be from 0 to 1000|must be a finite number"):
            learned(rows, tmp_path / "rec", kinds=kinds)
    with pytest.raises(segue.SegueError, match="must have a weight above 0"):
        learned(rows, tmp_path / "rec", kinds={"view": 0.0, "buy": 0.0})
    with pytest.raises(segue.SegueError, match="vectors=text needs items"):
        learned(rows, tmp_path / "rec", settings=quick(vectors="text"))
    with pytest.raises(segue.SegueError, match=r"heads must divide width; got 3 and 16\. Use heads=2"):
        learned(rows, tmp_path / "rec", settings=quick(heads=3))
    assert not list(tmp_path.iterdir())


def test_what_is_shown_of_a_small_shop(tmp_path: Path) -> None:
    """Only kinds that occur, no figures where nothing was measured, one event is no plural; others cannot read it."""
    rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n, "kind": "rent"} for n in range(60)]
    rows.append({"user": "one", "item": "i1", "time": 0, "kind": "view"})
    learned(rows, tmp_path / "rec", kinds={"gift": 2.0})
    about = json.loads((tmp_path / "rec" / "models" / "0001" / "model.json").read_text())
    assert about["occurring"] == ["rent", "view", "gift"]
    assert about["kinds"].keys() > set(about["occurring"])
    assert (tmp_path / "rec" / RECOMMEND.sqlite).stat().st_mode & 0o777 == 0o600
    report = (tmp_path / "rec" / "models" / "0001" / "report.md").read_text()
    (line,) = (line for line in report.splitlines() if line.startswith("| item-kNN"))
    assert line.split("|")[5].strip() == "–"
    for count in (0, -1):
        with pytest.raises(segue.SegueError, match="count must be at least 1"):
            segue.recommend(tmp_path / "rec", "u1", count=count)
    with pytest.raises(segue.SegueError, match="only_tags of a wish must be tags of items"):
        segue.recommend(tmp_path / "rec", "u1", wish={"only_tags": ["tea"]})
    done = command("recommend", "person", tmp_path / "rec", "one", "--delete", width=500)
    assert "Deleted: 1 event, 0 saved sessions." in done.stdout
    assert "Trained on these events: 0001." in done.stdout


def test_wishes_and_settings_in_python_are_explained(tmp_path: Path) -> None:
    with pytest.raises(segue.SegueError, match=r"width must be a multiple of 8; got 9"):
        segue.RecommenderSettings(width=9)
    with pytest.raises(segue.SegueError, match=r"wdth is not a setting\. Did you mean width"):
        segue.RecommenderSettings(wdth=8)  # type: ignore[call-arg]
    assert segue.RecommenderSettings(width=16).model_copy(update={"layers": 3}).layers == 3
    for wrong, text in (
        ({"x": 1}, r"wish\.x is not a setting\. .*only_tags"),
        ({"diversity": 2}, r"wish\.diversity must be .*1.*; got 2"),
        ({"only_tags": "tea"}, r"wish\.only_tags must be .*; got 'tea'"),
    ):
        with pytest.raises(segue.SegueError, match=text):
            parse_wish(wrong)


def test_a_column_of_texts_is_no_column_of_kinds(tmp_path: Path) -> None:
    database = RECOMMEND.database_at(tmp_path / "a.sqlite", alone=False)
    database.open()
    some = [Event(user="u", item="i", time=float(n), kind=f"kind {n}" if n % 2 else "often") for n in range(400)]
    database.do(lambda connection: add_events(connection, some))
    found = material(database, parse_kinds({}))
    database.close()
    assert "often" in found.kinds
    assert len(found.kinds) <= MOST_KINDS + len(parse_kinds({}))
    assert found.histories.kinds_N.min() == 0  # those that are not told apart
    assert sorted(found.kinds.values()) == list(range(1, len(found.kinds) + 1))


def test_items_that_the_table_of_items_lacks_are_told(tmp_path: Path) -> None:
    numbers = learned(events(users=6), tmp_path / "a", items=items())
    assert numbers["items_with_text"] == numbers["items"]
    others = [row | {"id": f"x-{row['id']}"} for row in items()]
    numbers = learned(events(users=6), tmp_path / "b", items=others)
    assert numbers["items_with_text"] == len(others) < numbers["items"]
    assert f"{len(others)} items have a title" in (tmp_path / "b" / "models" / "0001" / "report.md").read_text()
