"""Stop strings against a definition that looks at the whole text, however it is cut."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from segue.errors import ConfigError
from segue.infer.stops import StopStrings
from tests.examples import examples

# Few characters, so that stops overlap with themselves and each other.
few = st.text(st.sampled_from("ab停止"), max_size=30)
stop_lists = st.lists(st.text(st.sampled_from("ab停止"), min_size=1, max_size=5), max_size=4)


def definition(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Character by character: the first end of a stop, and of those that end there the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def streamed(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    watch = StopStrings(stops)
    out = "".join([watch.feed(piece) for piece in pieces])
    return out + watch.finish(), watch.found


@settings(max_examples=examples(400), deadline=None)
@given(text=few, stops=stop_lists, cuts=st.lists(st.integers(0, 30)))
@example(text="aab", stops=["ab"], cuts=[2])
@example(text="abcabd", stops=["abd"], cuts=[1, 2, 3, 4, 5])
@example(text="xabcd", stops=["abcd", "bc"], cuts=[3])
def test_any_cut_gives_the_same_text_and_the_same_stop(text: str, stops: list[str], cuts: list[int]) -> None:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert streamed(pieces, stops) == streamed(list(text), stops) == definition(text, stops)


@settings(max_examples=examples(200), deadline=None)
@given(text=few, stops=stop_lists)
def test_only_what_may_become_a_stop_waits(text: str, stops: list[str]) -> None:
    watch, out, read = StopStrings(stops), "", ""
    for character in text:
        out, read = out + watch.feed(character), read + character
        if watch.found is None:
            waiting = read[len(out) :]
            beginnings = {stop[:size] for stop in stops for size in range(1, len(stop))}
            assert out + waiting == read
            assert not waiting or waiting in beginnings
            assert not any(read.endswith(begun) and len(begun) > len(waiting) for begun in beginnings)


def test_after_a_stop_nothing_comes() -> None:
    watch = StopStrings(["\n\n", "用户："])
    assert watch.feed("你好。\n") == "你好。"
    assert watch.found is None
    assert watch.feed("再见。用户") == "\n再见。"
    assert watch.feed("：还有") == ""
    assert watch.found == "用户："
    assert watch.feed("更多") == watch.finish() == ""


def test_what_waits_comes_at_the_end() -> None:
    watch = StopStrings(["<end>"])
    assert watch.feed("a <en") == "a "
    assert watch.finish() == "<en"
    assert watch.finish() == ""


def test_bad_stops_are_refused() -> None:
    with pytest.raises(ConfigError, match="got an empty one"):
        StopStrings(["a", ""])
    with pytest.raises(ConfigError, match="Put it into a list"):
        StopStrings("abc")
    with pytest.raises(ConfigError, match="half a character"):
        StopStrings(["\ud83d"])
