"""Sessions: whatever way a text comes in, what is read, written, scored, copied and saved is the same."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import segue
from segue.config import changed
from segue.errors import CheckpointError, ConfigError, DataError
from segue.infer.sampling import SamplingSettings
from segue.infer.session import Session
from segue.infer.text_model import TextModel
from segue.model import Batch, LanguageModel
from segue.text.symbols import CharacterTokenizer
from tests.infer.texts import CHARACTERS, TOKENIZER, WITHOUT_EOD, some_texts
from tests.tasks.models import write_model
from tests.tiny import MODELS, noisy

XL = changed(MODELS["transformer-xl-enwik8-base"], memory={"length": 12})
XLNET = changed(MODELS["xlnet-base"], memory={"length": 12, "reuse_length": None})
GPT = changed(MODELS["gpt"], positions={"max_length": 16})
NO_MEMORY = changed(XL, memory=None)
CONFIGS = {"xl": XL, "xlnet": XLNET, "gpt": GPT, "no memory": NO_MEMORY}
TEXT = "中文 abc\ndef 天地人 hgfe\nab"


def text_model(name: str, *, tokenizer: CharacterTokenizer = TOKENIZER) -> TextModel:
    return TextModel(model=noisy(CONFIGS[name]), tokenizer=tokenizer, segment_length=10)


def session(name: str) -> Session:
    return Session(text_model(name))


def pieces(text: str, cuts: list[int]) -> list[str]:
    return [text[start:stop] for start, stop in itertools.pairwise([0, *sorted(cuts), len(text)])]


# ------------------------------------------------------------------------------------------------------- exactness


def by_definition(model: LanguageModel, ids: list[int]) -> list[float]:
    """log p of each id but the first: a causal model with memory, a token at a time."""
    memory, found = None, []
    with torch.no_grad():
        for now, after in itertools.pairwise(ids):
            output = model.trunk(Batch(ids_BQ=torch.tensor([[now]])), memory)
            memory = output.memory
            found.append(float(model.logits(output.hidden_BQD[0, -1]).log_softmax(dim=-1)[after]))
    return found


def test_scores_are_those_of_the_model() -> None:
    made = text_model("xl")
    found = Session(made).score(TEXT)
    expected = by_definition(made.model, [TOKENIZER.specials["eod"], *TOKENIZER.encode(TEXT).tolist()])
    assert [token.log_probability for token in found.tokens] == pytest.approx(expected, abs=1e-9)
    assert found.log_probability == pytest.approx(sum(expected), abs=1e-9)
    assert found.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)))
    assert [TEXT[token.start : token.end] for token in found.tokens] == list(TEXT)


def test_without_a_mark_the_first_token_has_no_score() -> None:
    made = text_model("xl", tokenizer=WITHOUT_EOD)
    found = Session(made).score("abc").tokens
    assert found[0].log_probability is None
    expected = by_definition(made.model, WITHOUT_EOD.encode("abc").tolist())
    assert [token.log_probability for token in found[1:]] == pytest.approx(expected, abs=1e-9)
    with pytest.raises(DataError, match="Give a prompt"):
        Session(made).stream()


def test_a_model_without_memory_reads_windows() -> None:
    """Each token is predicted from its window alone, which begins anew in the middle of the one before."""
    made = text_model("gpt")
    text = some_texts(1, longest=60, seed=3)[0] * 3
    ids = [TOKENIZER.specials["eod"], *TOKENIZER.encode(text).tolist()]
    start, expected = 0, []
    for place in range(1, len(ids)):
        if place - start > 16:
            start = place - 1 - 8
        window = torch.tensor([ids[start:place]])
        with torch.no_grad():
            hidden = made.model.trunk(Batch(ids_BQ=window)).hidden_BQD[0, -1]
            expected.append(float(made.model.logits(hidden).log_softmax(dim=-1)[ids[place]]))
    found = [token.log_probability for token in Session(made).score(text).tokens]
    assert len(found) > 40
    assert found == pytest.approx(expected, abs=1e-9)


# ------------------------------------------------------------------------------------------------------ any split


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=6))
def test_any_split_gives_the_same_scores(name: str, cuts: list[int]) -> None:
    whole, split = session(name), session(name)
    whole.feed(TEXT)
    for piece in pieces(TEXT, cuts):
        split.feed(piece)
    expected = [token.log_probability for token in whole.score("abc 中").tokens]
    assert [token.log_probability for token in split.score("abc 中").tokens] == pytest.approx(expected, abs=1e-9)
    assert whole.tokens_read == split.tokens_read


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {
        language: write_model(place / language, objective="causal", language=language)
        for language in ("english", "chinese")
    }


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_any_split_with_real_pieces(folders: dict[str, Path], language: str) -> None:
    text = {
        "english": "The staff were very kind, nearly asleep.",
        "chinese": "房间很干净，公司表示利润增长了百分之十。",
    }
    first = segue.open(folders[language])
    for cuts in ([1, 2, 3, 4, 5], list(range(1, len(text[language]))), [7]):
        whole, split = first.fork(), first.fork()
        whole.feed(text[language])
        for piece in pieces(text[language], cuts):
            split.feed(piece)
        assert whole.waiting == split.waiting
        expected = whole.score(" x").log_probability
        assert split.score(" x").log_probability == pytest.approx(expected, abs=1e-4)
        assert whole.tokens_read == split.tokens_read


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_streamed_text_is_that_of_the_tokens(folders: dict[str, Path], language: str) -> None:
    """New weights write any bytes: no piece of text is half a character, and together they are the decoded ids."""
    reader = segue.open(folders[language])
    written = list(reader.write("a", max_tokens=80, sampling=SamplingSettings(top_k=None, seed=1)))
    ids = [one.id for one in written if one.id is not None]
    assert "".join(one.text for one in written) == reader.tokenizer.decode(ids)


# ------------------------------------------------------------------------------------------ forks, files, batches


@pytest.mark.parametrize("name", CONFIGS)
def test_forks_do_not_touch_each_other(name: str) -> None:
    first, alone = session(name), session(name)
    for one in (first, alone):
        one.feed(TEXT)
    other = first.fork()
    other.feed("hhhh gggg")
    list(other.stream(max_tokens=20))
    assert first.score("ab中").log_probability == alone.score("ab中").log_probability
    assert first.tokens_read == alone.tokens_read


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_in_the_middle_nothing_changes(name: str, tmp_path: Path) -> None:
    made = text_model(name)
    never, saved, later = Session(made), Session(made), Session(made)
    for one in (never, saved):
        one.feed(TEXT)
        assert one.stream(max_tokens=5)
        for _ in itertools.islice(one.write(max_tokens=9, sampling=SamplingSettings(seed=4)), 3):
            pass
    saved.save(tmp_path / "session")
    later.feed("something else")
    later.load(tmp_path / "session")
    assert later.tokens_read == never.tokens_read
    assert later.score("天地").tokens == never.score("天地").tokens
    assert list(later.stream(max_tokens=9)) == list(never.stream(max_tokens=9))
    assert [path.name for path in tmp_path.iterdir()] == ["session"]


def test_held_back_text_is_saved(folders: dict[str, Path], tmp_path: Path) -> None:
    first = segue.open(folders["english"])
    first.feed("The sta")
    assert first.waiting
    first.save(tmp_path / "session")
    second = segue.open(folders["english"])
    second.load(tmp_path / "session")
    for one in (first, second):
        one.feed("ff were")
    assert first.score(".").tokens == second.score(".").tokens


def test_a_session_of_another_model_is_refused(tmp_path: Path) -> None:
    first = session("xl")
    first.feed("abc")
    first.save(tmp_path / "session")
    others = {
        "weights": Session(TextModel(model=noisy(XL, seed=1), tokenizer=TOKENIZER, segment_length=10)),
        "shape": session("gpt"),
        "memory": Session(text_model("xl"), memory_length=5),
        "int8": Session(text_model("xl"), int8=True),
    }
    for other in others.values():
        other.feed("cba")
        before = other.fork().score("a").log_probability
        with pytest.raises(CheckpointError, match="same model"):
            other.load(tmp_path / "session")
        assert other.score("a").log_probability == before
    tokens = Session(text_model("xl", tokenizer=WITHOUT_EOD))
    with pytest.raises(CheckpointError, match="same tokenizer"):
        tokens.load(tmp_path / "session")


def test_broken_files_are_refused(tmp_path: Path) -> None:
    reader = session("xl")
    reader.feed("abc")
    reader.save(tmp_path / "session")
    whole = (tmp_path / "session").read_bytes()
    broken = tmp_path / "broken"
    for data in (b"", b"nonsense", whole[:50], whole[:-3]):
        broken.write_bytes(data)
        with pytest.raises(CheckpointError):
            reader.load(broken)
    with pytest.raises(CheckpointError, match="Check the path"):
        reader.load(tmp_path / "nothing")
    save_file({"key": torch.zeros(2)}, broken, metadata={"format": "segue-session-0"})
    with pytest.raises(CheckpointError, match="another version"):
        reader.load(broken)


# ------------------------------------------------------------------------------------------------ writing, stopping


def test_writing_is_seeded_and_read() -> None:
    first = session("xl")
    first.feed(TEXT)
    forks = [first.fork() for _ in range(3)]
    texts = ["".join(one.stream(max_tokens=30, sampling=SamplingSettings(seed=seed)))
             for one, seed in zip(forks, (5, 5, 6), strict=True)]  # fmt: skip
    assert texts[0] == texts[1] != texts[2]
    again = first.fork()
    again.feed_tokens(
        [one.id for one in first.fork().write(max_tokens=30, sampling=SamplingSettings(seed=5)) if one.id]
    )
    assert again.score("ab").log_probability == pytest.approx(forks[0].score("ab").log_probability, abs=1e-9)


def test_greedy_takes_the_likeliest() -> None:
    reader = session("xl")
    sampling = SamplingSettings(greedy=True, top_log_probabilities=len(CHARACTERS))
    specials = {TOKENIZER.token(index) for name, index in TOKENIZER.specials.items() if name not in ("eod", "eop")}
    for one in reader.write("ab", max_tokens=9, sampling=sampling):
        usual = [other for other in one.alternatives if other[0] not in specials]
        assert usual[0] == (one.token, one.log_probability)


def test_stop_strings_and_choices() -> None:
    reader = session("xl")
    sampling = SamplingSettings(seed=2, logit_bias={TOKENIZER.specials["eod"]: -math.inf})
    text = "".join(reader.fork().stream("ab", max_tokens=40, sampling=sampling))
    stop = text[5:7]
    stopped = "".join(reader.fork().stream("ab", max_tokens=40, sampling=sampling, stop=[stop]))
    assert stopped == text[: text.index(stop)]
    for seed in range(5):
        chosen = "".join(
            reader.fork().stream("ab", choices=["中文", "abc", "天"], sampling=SamplingSettings(seed=seed))
        )
        assert chosen in {"中文", "abc", "天"}


def test_an_interrupted_stream_leaves_the_session_usable() -> None:
    reader, whole = session("xl"), session("xl")
    sampling = SamplingSettings(greedy=True)
    full = [one.id for one in whole.write(TEXT, max_tokens=12, sampling=sampling)]
    first = [one.id for one in itertools.islice(reader.write(TEXT, max_tokens=12, sampling=sampling), 5)]
    rest = [one.id for one in reader.write(max_tokens=len(full) - 5, sampling=sampling)]
    assert first + rest == full


def test_an_interruption_inside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a layer computes: what was being read is read again later, nothing is lost or doubled."""
    reader, other = session("xl"), session("xl")
    for one in (reader, other):
        one.feed(TEXT)
    stream = reader._stream
    real, calls = stream.streamer.read, []

    def interrupted(*arguments: object, **named: object) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(stream.streamer, "read", interrupted)
    sampling = SamplingSettings(greedy=True)
    given = []
    with pytest.raises(KeyboardInterrupt):
        given.extend(one.id for one in reader.write(max_tokens=9, sampling=sampling))
    monkeypatch.undo()
    rest = [one.id for one in reader.write(max_tokens=7, sampling=sampling)]
    assert rest == [one.id for one in other.write(max_tokens=9, sampling=sampling)][2:]


@pytest.mark.parametrize("name", CONFIGS)
def test_beam_search_finds_the_likeliest(name: str) -> None:
    """With a beam that holds all, it is the likeliest of all texts, and its log-probability is that of `score`."""
    reader = session(name)
    reader.feed("ab 中")
    before = reader.fork().score("a").log_probability
    best, *others = reader.search(beam=40, count=5, max_tokens=2)
    assert reader.score("a").log_probability == before
    assert all(best.score >= other.score for other in others)
    assert len({one.tokens for one in [best, *others]}) == 5


def test_beam_search_scores_as_the_session_does() -> None:
    reader = session("xl")
    reader.feed("ab 中")
    for one in reader.search(beam=6, count=3, max_tokens=4):
        fork = reader.fork()
        ids = [*one.tokens, TOKENIZER.specials["eod"]]
        assert sum(fork.ready().score(ids)) == pytest.approx(one.log_probability, abs=1e-6)


# ------------------------------------------------------------------------------------------------------- robustness


def test_a_long_stream_neither_grows_nor_slows_in_work() -> None:
    reader = session("xl")
    reader.feed(CHARACTERS * 200)
    shape, size = reader._stream.cache.key_LBHCE.shape, len(reader._stream.recent)
    reader.feed(CHARACTERS * 200)
    assert reader._stream.cache.key_LBHCE.shape == shape
    assert len(reader._stream.recent) == size
    assert reader.tokens_read == 1 + 400 * len(CHARACTERS)


def test_nan_weights_are_named() -> None:
    made = text_model("xl")
    with torch.no_grad():
        made.model.trunk.vocabulary.tables[0].fill_(math.nan)
    with pytest.raises(DataError, match="NaN"):
        Session(made).score("abc")
    with pytest.raises(DataError, match="NaN"):
        list(Session(made).stream("abc"))


def test_odd_text() -> None:
    reader = session("xl")
    for text in ("", "\ud800", "😀�", "\x00"):
        reader.feed(text)
    assert reader.score("").tokens == ()
    assert math.isnan(reader.score("").perplexity)
    assert len(reader.score("\udfff😀").tokens) == 2


def test_absurd_settings() -> None:
    reader = session("xl")
    for wrong in (0, -1):
        with pytest.raises(ConfigError, match="max_tokens"):
            reader.stream("a", max_tokens=wrong)
    for wrong in (0, -1, 10**12):
        with pytest.raises(ConfigError, match="memory_length"):
            Session(text_model("xl"), memory_length=wrong)
    for penalty in (math.nan, -1.0, 1e6):
        with pytest.raises(ConfigError, match="length_penalty"):
            reader.search(length_penalty=penalty)
    with pytest.raises(ConfigError, match="learned positions"):
        Session(text_model("gpt"), memory_length=8)
    with pytest.raises(ConfigError, match="beam search needs"):
        Session(text_model("xl", tokenizer=WITHOUT_EOD)).search()
    with pytest.raises(DataError, match="further tokens"):
        session("gpt").search(max_tokens=30)
    with pytest.raises(DataError, match="ids must be"):
        reader.feed_tokens([10**6])
    assert reader.tokens_read == 0


def test_eight_bits_are_nearly_the_same(folders: dict[str, Path]) -> None:
    text = "The room was clean and the staff were very kind to us."
    whole, rounded = segue.open(folders["english"]), segue.open(folders["english"], int8=True)
    exact = whole.score(text).perplexity
    assert rounded.score(text).perplexity == pytest.approx(exact, rel=0.01)
    assert rounded.score(text).perplexity != exact
