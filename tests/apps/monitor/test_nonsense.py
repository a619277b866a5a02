"""What nobody should send: broken files, feeds and lists, enormous texts, impossible times."""

import asyncio
import json
import time
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.cells import parse_time
from segue.apps.database import DatabaseFullError
from segue.apps.monitor import growing, queries, service
from segue.apps.monitor.feeds import _seconds, read_feed, read_json
from segue.apps.monitor.growing import next_line, read_more, row_of
from segue.apps.monitor.prices import read_prices
from segue.apps.monitor.service import MonitorService
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import Listed, Prices, Source, read_sources
from segue.apps.monitor.store import MONITOR, get_state
from segue.apps.monitor.stream import Batch
from segue.apps.monitor.terms import terms_of
from segue.errors import ConfigError, DataError, SegueError
from tests.command import command

# --------------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    "written",
    [10**400, -(10**400), float("inf"), float("nan"), "9" * 100_000, "Mon, 1 Jan 2024 00:00:00 +99999999999999",
     "99999-01-01", "0000-00-00", "2024-02-30", "", " ", "1e400", True, [], {}, "²" * 9],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_impossible_times_are_none(written: Any) -> None:
    assert parse_time(written, UTC) is None


def test_a_time_ahead_of_the_clock_does_not_make_others_late(monitor: Path) -> None:
    """A source in a wrong zone is some hours ahead; the others go on to be judged."""
    now = time.time()
    segue.feed_monitor(monitor, [{"text": "Acme wins a large order", "time": now + 20 * 3600}], progress=False)
    segue.feed_monitor(monitor, [{"text": "Acme posts a heavy loss", "time": now - 60}], progress=False)
    with MONITOR.opened(monitor) as database:
        found = database.do(lambda connection: queries.texts(connection, entity="ACME"))
        judged = database.do(lambda connection: get_state(connection, "judged"))
    assert [one["late"] for one in found] == [False, False]
    assert judged is not None
    assert judged <= time.time() - MonitorSettings().lateness


# --------------------------------------------------------------------------------------------------------------- files


def rows_of(path: Path, **more: Any) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
    rows, refused = [], []
    source = Source(name="a", kind="file", path=str(path), follow=False, **more)
    for some in read_more(source, {}, most=3):
        rows += some.rows
        refused += some.refused
        json.dumps(some.place)
    return rows, refused


def test_a_quote_without_an_end_costs_its_own_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('time,text\n1,one\n2,"two\n3,three\n4,"fo\nur"\n5,five\n')
    rows, refused = rows_of(path)
    assert [row["text"] for row in rows] == ["one", "three", "fo\nur", "five"]
    assert refused == [("a quote must have an end; it has none", '2,"two')]


def test_cells_that_csv_does_not_allow_and_long_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"time,text\n1,a\rb\n2," + b"x" * 300_000 + b"\n3,good\n")
    rows, refused = rows_of(path)
    assert [len(row["text"]) for row in rows] == [300_000, 4]
    assert len(refused) == 1
    assert "one of csv" in refused[0][0]


@pytest.mark.parametrize("comma", [";", "\t"])
def test_csv_with_other_separators(tmp_path: Path, comma: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"time{comma}text\n1{comma}up, and up\n")
    assert rows_of(path)[0] == [{"time": "1", "text": "up, and up"}]


def test_a_separator_is_remembered_while_a_file_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time;text\n1;one\n")
    source = Source(name="a", kind="file", path=str(path))
    [some] = read_more(source, {}, most=10)
    with path.open("a") as file:
        file.write("2;two, three\n")
    [more] = read_more(source, json.loads(json.dumps(some.place)), most=10)
    assert more.rows == [{"time": "2", "text": "two, three"}]


def test_lines_of_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "LONGEST_LINE", 20)
    (tmp_path / "in").write_bytes(b'{"text": "a"}\n' + b"x" * 90 + b"\n\xff\xfe\nplain\n{nonsense\nlast")
    with (tmp_path / "in").open("rb") as file:
        lines = list(iter(lambda: next_line(file), None))
    assert len(lines) == 6
    found = [row_of(line, "utf-8") for line in lines]
    assert [row for row in found if isinstance(row, dict)] == [{"text": "a"}, {"text": "plain"}, {"text": "last"}]
    reasons = [growing.bad_reason(row) for row in found if not isinstance(row, dict)]
    assert [reason[0][:25] for reason in reasons if reason] == [
        "a line must have at most ", "a line must be in utf-8; ", "a line must be an object "
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["my texts (1).csv", f"{'长' * 80}.csv", "a b"])
def test_files_with_any_name_are_read(monitor: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if path.suffix:
        path.write_text("text\nAcme posts a heavy loss\n")
    else:
        path.mkdir()
        (path / "a.txt").write_text("Acme posts a heavy loss\n")
    assert segue.feed_monitor(monitor, path, progress=False).texts == 1
    assert segue.feed_monitor(monitor, path, progress=False).texts == 0


def test_rows_that_cannot_be_shown_are_refused_and_the_rest_is_read(monitor: Path, tmp_path: Path) -> None:
    deep = "[" * 500 + "]" * 500
    lines = [
        '{"text": "", "x": "\\ud800\\u0000"}', f'{{"text": {deep}}}', "[" * 100_000,
        '{"text": "Acme wins", "time": 1e999}',
        '{"text": "Acme falls", "id": "\\udfff", "author": "\\u0000"}', f'{{"text": "Acme", "time": {"9" * 400}}}',
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    found = segue.feed_monitor(monitor, tmp_path / "a.jsonl", progress=False)
    assert (found.texts, found.refused) == (1, 5)


# --------------------------------------------------------------------------------------------------------------- feeds


def test_feeds_that_are_not_quite_xml_are_mended() -> None:
    body = (
        "\n <?xml version='1.0'?><rss><channel><item>"
        "<title>R&D at AT&T&nbsp;Labs &euro; &unknown; &amp; &#8364;</title>"
        "<description><![CDATA[a & b &nbsp; <b>c</b>]]></description>\x0b</item></channel></rss>"
    )
    [row] = read_feed(body)
    assert row == {"title": "R&D at AT&T Labs € &unknown; & €", "text": "a & b c"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<rss>" + "<item>" * 100_000, "inside of each other"),
        ("<rss><item><title>a</title>", "must be XML"),
        ("<html><p>not found<br></html>", "must be XML"),
        ("\0\0\0", "must be XML"),
        ("&" * 100_000, "must be XML"),
    ],
    ids=["deep", "cut", "html", "zeros", "ampersands"],
)
def test_feeds_that_cannot_be_mended_are_refused(body: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_feed(body)


def test_items_of_json_that_are_no_objects_are_refused_not_dropped() -> None:
    rows, refused = read_json('{"items": [{"text": "a"}, 3, null]}')
    assert rows == [{"text": "a"}]
    assert [row for _, row in refused] == [3, None]
    for body in ("[" * 100_000, "3", "", "{"):
        with pytest.raises(DataError, match="JSON"):
            read_json(body)


def test_retry_after_is_a_number_or_a_date() -> None:
    assert _seconds("120") == 120.0
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 500))
    found = _seconds(later)
    assert found is not None
    assert 490 < found <= 500
    assert _seconds("Thu, 14 Feb 2019 00:00:00 GMT") == 0.0
    assert [_seconds(one) for one in ("", "soon", "²", "9" * 400)] == [None] * 4


# ------------------------------------------------------------------------------------------------------ enormous texts


def test_the_longest_text_with_a_name_in_every_clause(learned: Path) -> None:
    """It took half a minute when each clause was compared with each name."""
    model = segue.open_monitor(learned)
    text = "Acme posts a heavy loss. Globex profit rose strongly, and Acme and Globex hold a meeting; " * 2200
    assert 190_000 < len(text) < 200_000
    found = model.read(text)
    assert list(found.entities) == ["ACME", "GLBX"]
    joined = "Acme and Globex and " * 9000 + "rose"
    assert list(model.read(joined).entities) == ["ACME", "GLBX"]
    assert len(model.deciding(text[:50_000], entity="GLBX")) > 1000


@pytest.mark.parametrize("text", ["1" * 20_000, "1," * 10_000, "1 from " * 2500, "1.1" * 6000])
def test_figures_without_end_are_read(text: str) -> None:
    assert terms_of(text)


def test_comparisons_are_found_as_before() -> None:
    def compared(text: str) -> list[str]:
        return [term for term in terms_of(text) if term.startswith("^")]

    assert compared("to 11.2 mn from 13.1 mn") == ["^down"]
    assert compared("sales,11,200 versus 9,100") == ["^up"]
    assert compared("12.5,30 from 20") == ["^up"]
    assert compared("loss 5 from 3; 7 vs 9") == ["^up loss", "^down loss"]


# ------------------------------------------------------------------------------------------------- lists and settings


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[[source]]\nname = 'a'\nkind = 'feed'\nurl = 'ftp://x'\n", "source 'a', url must begin with http"),
        ("[[source]]\nname = 'a'\nkind = 'folder'\npath = '.'\npattern = '/etc/*'\n", "inside of its folder"),
        ("[[source]]\nname = 'a'\nkind = 'folder'\npath = '.'\npattern = '../*'\n", "inside of its folder"),
        ("[[source]]\nname = 'a'\nkind = 'folder'\npath = '.'\npattern = ''\n", "inside of its folder"),
        ("[[source]]\nname = 'a'\nkind = 'feed'\nurl = 'http://x'\nevery = 1\n", "every"),
        ("source = 3\n", "source"),
        ("[[sauce]]\nname = 'a'\n", "sauce"),
        ("\0", "in TOML"),
    ],
)
def test_lists_with_more_mistakes_are_explained(tmp_path: Path, written: str, said: str) -> None:
    (tmp_path / "sources.toml").write_text(written)
    with pytest.raises(ConfigError, match=said):
        read_sources(tmp_path / "sources.toml")


@pytest.mark.parametrize(
    "setting",
    ["lateness=soon", "lateness=-1", "false_alarms=0", "latness=3", "find_names=en=", "find_names=nowhere/at/all"],
)
def test_bad_settings_are_told_before_anything_is_read(monitor: Path, tmp_path: Path, setting: str) -> None:
    (tmp_path / "a.txt").write_text("Acme posts a heavy loss\n")
    done = command("monitor", "read", monitor, tmp_path / "a.txt", "--set", setting)
    assert done.returncode == 2
    assert setting.partition("=")[0][:4] in done.stderr or "nowhere" in done.stderr
    with MONITOR.opened(monitor) as database:
        assert database.do(queries.span) is None


def test_a_model_that_does_not_tag_is_told(monitor: Path) -> None:
    with pytest.raises(SegueError):
        segue.feed_monitor(
            monitor, [{"text": "x"}], settings=MonitorSettings(find_names="xlnet-mini-en"), progress=False
        )


def test_prices_without_a_number_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(
        "date,symbol,close\n2024-01-01,A,1\n2024-01-02,A,nan\n2024-01-03,A,inf\n2024-01-04,A,\n"
    )
    assert list(read_prices(tmp_path / "p.csv")["A"].values()) == [1.0]


# -------------------------------------------------------------------------------------------------------------- service


def test_lines_of_standard_input_wait_for_room_on_the_disk(
    monitor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").write_text("Acme wins\nAcme falls\n")
    one = MonitorService(monitor, MonitorSettings(), listed=Listed())
    taken: list[Batch] = []
    problems: list[str] = []

    async def take(batch: Batch) -> None:
        if len(problems) < 2:
            raise DatabaseFullError("the disk is full")
        taken.append(batch)

    async def problem(source: Source, said: str) -> None:
        problems.append(said)

    monkeypatch.setattr(one, "take", take)
    monkeypatch.setattr(one, "_problem", problem)
    monkeypatch.setattr(service, "TROUBLED", 0.01)
    with (tmp_path / "in").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        asyncio.run(one._lines(Source(name="in", kind="stdin")))
    assert [text.text for batch in taken for text in batch.texts] == ["Acme wins", "Acme falls"]
    assert problems == ["the disk is full"] * 2


def test_prices_are_read_again_when_their_file_changes(
    monitor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("date,symbol,close\n2024-01-01,ACME,1\n")
    monkeypatch.setattr(service, "CLOCK", 0.01)
    one = MonitorService(monitor, MonitorSettings(), listed=Listed(prices=Prices(path=str(path))))

    async def follow() -> None:
        following = asyncio.create_task(one._follow_prices(path))
        await asyncio.sleep(0.05)
        path.write_text("nonsense\n")
        await asyncio.sleep(0.1)
        assert list(one.prices["ACME"].values()) == [1.0]
        path.write_text("date,symbol,close\n2024-01-01,ACME,1\n2024-01-02,ACME,2\n")
        async with asyncio.timeout(20):
            while len(one.prices["ACME"]) < 2:
                await asyncio.sleep(0.01)
        following.cancel()

    asyncio.run(follow())
