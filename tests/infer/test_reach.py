"""Only what can matter of a long prompt is read, and not one token less (float64)."""

import pytest
import torch

from segue.config import changed
from segue.errors import DataError
from segue.infer.token_stream import TokenStream
from segue.model.streaming import Streamer
from tests.infer.test_session import CONFIGS, session
from tests.infer.texts import some_texts
from tests.model.test_streaming import STREAMED
from tests.tiny import noisy, random_ids

MODELS = STREAMED | {"zeros": changed(STREAMED["transformer-xl-enwik8-base"], memory={"initial": "zeros"})}
WITH_MEMORY = [name for name, config in MODELS.items() if config.memory is not None]
IDS = random_ids(1, 90, seed=5)[0].tolist()
SOME = IDS[:40]
LATER = random_ids(1, 14, seed=6)[0].tolist()
"""More than any model here can look back."""
WINDOW = 16


def streamer(name: str, *, span: int | None = None) -> Streamer:
    config = MODELS[name]
    if config.memory is None:
        return Streamer(noisy(config), memory_length=WINDOW)
    config = changed(config, memory={"reuse_length": None}, attention_span=span)
    return Streamer(noisy(config), memory_length=6, most_at_once=7)


def logits_after(stream: TokenStream) -> torch.Tensor:
    """Logits of what comes next, and of what comes after each of some further ids."""
    found = [stream.logits()]
    for index in LATER:
        stream.read([index])
        found.append(stream.logits())
    return torch.stack(found)


def one_by_one(reader: Streamer, ids: list[int], *, window: int | None = None) -> TokenStream:
    """A stream that has read all of them."""
    stream = TokenStream(reader, window=window)
    assert sum(stream.read([index]) for index in ids) == 0
    return stream


CASES = [
    (name, span)
    for name in WITH_MEMORY
    for span in ((None, 1, 4) if MODELS[name].objective == "causal" else (None,))  # others have no attention span
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "span"), CASES)
def test_skipping_changes_nothing_and_one_token_less_would(name: str, span: int | None) -> None:
    reader = streamer(name, span=span)
    reach = 2 * ((span or 7) - 1) + 1
    whole, skipping = one_by_one(reader, SOME), TokenStream(reader, window=None)
    assert skipping.reach == reach
    assert skipping.read(SOME) == len(SOME) - reach
    assert (skipping.count, skipping.place, list(skipping.recent)) == (whole.count, whole.place, list(whole.recent))
    torch.testing.assert_close(skipping.cache.position_B, whole.cache.position_B)
    less = TokenStream(reader, window=None)
    less.cache.position_B += len(SOME) - (reach - 1)
    less.read(SOME[len(SOME) - (reach - 1) :])
    expected = logits_after(whole)
    torch.testing.assert_close(logits_after(skipping), expected, rtol=0, atol=1e-12)
    if reach > 1:
        assert (less.logits() - expected[0]).abs().max() > 1e-9


@pytest.mark.parametrize("count", [16, 17, 24, 25, 63, 90])
@pytest.mark.parametrize("name", [name for name in MODELS if name not in WITH_MEMORY])
def test_windows_that_are_over_are_skipped(name: str, count: int) -> None:
    reader = streamer(name)
    whole, skipping = one_by_one(reader, IDS[:count], window=WINDOW), TokenStream(reader, window=WINDOW)
    skipped = skipping.read(IDS[:count])
    assert skipped == (count - ((count - WINDOW - 1) % 8 + 1) if count > WINDOW else 0)
    assert (skipping.count, skipping.place, list(skipping.recent)) == (whole.count, whole.place, list(whole.recent))
    torch.testing.assert_close(logits_after(skipping), logits_after(whole), rtol=0, atol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_long_prompt_in_a_session(name: str) -> None:
    """However it comes, in parts or at once, after something else, and with many more tokens than may wait."""
    text = "".join(some_texts(160, longest=60, seed=8))
    assert len(text) > 4200
    parts = [text[start : start + 1000] for start in range(0, len(text), 1000)]
    whole, at_once, as_parts = session(name), session(name), session(name)
    told: list[tuple[int, int]] = []
    for one in (whole, at_once, as_parts):
        one.feed("天地")
    whole.score(text)  # which needs every token
    skipped = at_once.feed(text, progress=lambda done, total: told.append((done, total)))
    assert as_parts.feed(parts) == skipped
    assert len(text) - at_once.reach <= skipped < len(text)
    assert told[-1] == (len(text) - skipped, len(text) - skipped)
    assert whole.tokens_read == at_once.tokens_read == as_parts.tokens_read == len(text) + 3
    expected = whole.score("abc 中").log_probability
    for one in (at_once, as_parts):
        assert one.score("abc 中").log_probability == pytest.approx(expected, abs=1e-11)


def test_only_text_is_fed() -> None:
    one = session("xl")
    for wrong in ([3, 4], [b"ab"], b"ab"):
        with pytest.raises(DataError, match="Use feed_tokens for ids"):
            one.feed(wrong)  # type: ignore[arg-type]
    one.feed("ab")


def test_an_interruption_loses_nothing() -> None:
    text = "".join(some_texts(30, longest=60, seed=8))
    one, whole = session("xl"), session("xl")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.feed(text, progress=stop)
    whole.feed(text)
    assert one.tokens_read == whole.tokens_read
    assert one.score("abc").log_probability == pytest.approx(whole.score("abc").log_probability, abs=1e-11)
