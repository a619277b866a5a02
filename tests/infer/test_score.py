"""Scores: equal to their definitions written with loops, whatever is read side by side, and sums that are exact."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.errors import ConfigError, DataError
from segue.infer.documents import TextPart, text_parts
from segue.infer.score import ScoreSettings, ScoreTotals, TextScore, TokenScore, score, score_texts
from segue.model import Batch, LanguageModel
from segue.text.symbols import ByteTokenizer
from segue.text.tokenizer import Tokenizer
from segue.text.words import WordTokenizer
from tests.infer.texts import CHARACTERS, TOKENIZER, WITHOUT_EOD, some_texts
from tests.tiny import CAUSAL, MODELS, noisy

TEXT = "ab 中文\n天地 cd\n\n人字gh a"
EOD, MASK = TOKENIZER.specials["eod"], TOKENIZER.specials["mask"]
XL = MODELS["transformer-xl-enwik8-base"]
XLNET = MODELS["xlnet-base"]
WITH_MEMORY = ["transformer-xl-wt103-base", "transformer-xl-enwik8", "shaw", "clamped", "absolute", "rotary", "alibi"]
WINDOWED = [name for name, config in CAUSAL.items() if config.memory is None or config.learned_positions is not None]


def token_scores(
    model: LanguageModel, text: str, settings: ScoreSettings, tokenizer: Tokenizer = TOKENIZER
) -> list[float | None]:
    rows = score_texts(model, tokenizer, [text], settings)
    return [row.log_probability for row in rows if isinstance(row, TokenScore)]


def by_token(**settings: object) -> ScoreSettings:
    return ScoreSettings(by="token", **settings)  # type: ignore[arg-type]


@torch.no_grad()
def log_probabilities(model: LanguageModel, hidden_D: torch.Tensor) -> torch.Tensor:
    return model.logits(hidden_D[..., : model.config.width]).log_softmax(dim=-1)


@torch.no_grad()
def token_by_token(model: LanguageModel, ids: list[int]) -> list[float]:
    """Each token read alone, with what the model remembers, predicts the next."""
    model = model.adjusted(memory={"reuse_length": None})
    memory, found = None, []
    for this, following in itertools.pairwise(ids):
        result = model(Batch(ids_BQ=torch.tensor([[this]])), memory)
        memory = result.memory
        found.append(float(log_probabilities(model, result.output.hidden_BQD[0, -1])[following]))
    return found


# --------------------------------------------------------------------------------------------------------------- causal


@pytest.mark.one_in(3)
@pytest.mark.parametrize("segment_length", [1, 5, 64])
@pytest.mark.parametrize("name", WITH_MEMORY)
def test_causal_with_memory_is_the_reading_token_by_token(name: str, segment_length: int) -> None:
    model = noisy(MODELS[name])
    expected = token_by_token(model, [EOD, *TOKENIZER.encode(TEXT).tolist()])
    found = token_scores(model, TEXT, by_token(segment_length=segment_length))
    assert found == pytest.approx(expected, abs=1e-9)


def test_causal_with_room_for_all_is_one_forward() -> None:
    model = noisy(changed(XL, memory={"length": 40}))
    ids = torch.from_numpy(TOKENIZER.encode(TEXT))
    with torch.no_grad():
        output = model(Batch(ids_BQ=torch.cat([torch.tensor([EOD]), ids])[None])).output
    expected = log_probabilities(model, output.hidden_BQD[0, :-1])[torch.arange(len(ids)), ids]
    for segment_length in (3, 8, 100):
        found = token_scores(model, TEXT, by_token(segment_length=segment_length))
        assert found == pytest.approx(expected.tolist(), abs=1e-9)


@pytest.mark.parametrize("name", WINDOWED)
def test_causal_without_memory_slides_a_window(name: str) -> None:
    model, length = noisy(MODELS[name]), 6
    ids = [EOD, *TOKENIZER.encode(TEXT).tolist()]
    alone = model.adjusted(memory=None)
    expected = []
    for place in range(1, len(ids)):
        # The first window begins with the text; each one after it repeats three positions.
        window = 0 if place <= length else 1 + (place - length - 1) // (length - 3 + 1)
        begin = window * (length - 3 + 1)
        with torch.no_grad():
            hidden = alone(Batch(ids_BQ=torch.tensor([ids[begin:place]]))).output.hidden_BQD[0, -1]
        assert place - begin <= length
        expected.append(float(log_probabilities(alone, hidden)[ids[place]]))
    assert token_scores(model, TEXT, by_token(segment_length=length)) == pytest.approx(expected, abs=1e-9)


def test_learned_positions_limit_the_window() -> None:
    text = "".join(CHARACTERS[n * 7 % 16] for n in range(130))
    found = token_scores(noisy(MODELS["gpt"]), text, by_token(segment_length=1000))
    assert len(found) == 130
    assert all(value is not None and value < 0 for value in found)


def test_without_eod_the_first_token_has_no_probability() -> None:
    model = noisy(XL)
    ids = WITHOUT_EOD.encode(TEXT).tolist()
    settings = by_token(segment_length=4)
    found = token_scores(model, TEXT, settings, WITHOUT_EOD)
    assert found[0] is None
    assert found[1:] == pytest.approx(token_by_token(model, ids), abs=1e-9)
    texts = ["a", TEXT, "中", "bc"]
    rows = [row for row in score_texts(model, WITHOUT_EOD, texts) if isinstance(row, TextScore)]
    assert [(row.tokens, row.scored) for row in rows] == [(1, 0), (19, 18), (1, 0), (2, 1)]
    assert (rows[0].log_probability, rows[0].perplexity) == (0.0, None)
    assert rows[1].perplexity == pytest.approx(math.exp(-sum(v for v in found if v is not None) / 18))
    assert token_scores(model, "a", settings, WITHOUT_EOD) == [None]


# ---------------------------------------------------------------------------------------------------------- permutation


@torch.no_grad()
def in_order(
    model: LanguageModel, ids: list[int], order: list[int], *, known: int, memory: object = None
) -> tuple[list[float], object]:
    """Position after position: each from what is known and from those before it in the order."""
    size = known + len(ids[known:])
    ranks = dict.fromkeys(range(known), -1) | {known + place: n for n, place in enumerate(order)}
    visible_BQQ = torch.zeros(1, size, size, dtype=torch.bool)
    for row in range(size):
        for column in range(size):
            visible_BQQ[0, row, column] = ranks[column] < ranks[row] or ranks[row] == ranks[column] == -1
    found = []
    for place in range(known, size):
        batch = Batch(ids_BQ=torch.tensor([ids]), visible_BQQ=visible_BQQ, predicted_BP=torch.tensor([[place]]))
        result = model(batch, memory)
        found.append(float(log_probabilities(model, result.output.predicted_BPD[0, 0])[ids[place]]))
    return found, result.memory


@pytest.mark.parametrize("name", ["xlnet-base", "permutation-shaw", "permutation-per-layer", "permutation-rotary"])
def test_permutation_in_one_segment(name: str) -> None:
    model = noisy(MODELS[name])
    ids = TOKENIZER.encode(TEXT).tolist()
    shuffled = np.random.default_rng(5).permutation(len(ids)).tolist()
    for order, positions in (
        ("forward", list(range(len(ids)))),
        ("backward", list(range(len(ids)))[::-1]),
        (shuffled, shuffled),
    ):
        expected, _ = in_order(model, [EOD, *ids], positions, known=1)
        found = token_scores(model, TEXT, by_token(order=order, segment_length=40))
        assert found == pytest.approx(expected, abs=1e-9)


def test_permutation_segment_by_segment_with_memory() -> None:
    model = noisy(XLNET)
    remembering = model.adjusted(memory={"reuse_length": None})
    ids = TOKENIZER.encode(TEXT).tolist()
    expected, memory, begin = [], None, 0
    while begin < len(ids):
        first = [EOD] if begin == 0 else []
        part = ids[begin : begin + 7 - len(first)]
        order = list(range(len(part)))[::-1]
        values, memory = in_order(remembering, first + part, order, known=len(first), memory=memory)
        expected += values
        begin += len(part)
    found = token_scores(model, TEXT, by_token(order="backward", segment_length=7))
    assert found == pytest.approx(expected, abs=1e-9)


def test_permutation_predicts_from_nothing_too() -> None:
    model = noisy(XLNET)
    ids = WITHOUT_EOD.encode("ab中").tolist()
    expected, _ = in_order(model, ids, [2, 0, 1], known=0)
    assert token_scores(model, "ab中", by_token(order=[2, 0, 1]), WITHOUT_EOD) == pytest.approx(expected, abs=1e-9)


def test_random_orders_are_those_of_the_seed_and_the_document() -> None:
    model, texts = noisy(XLNET), ["ab中文", "ab中文", "天"]
    rows = [
        [row.log_probability for row in score_texts(model, TOKENIZER, texts, ScoreSettings(order="random", seed=seed))]
        for seed in (1, 1, 2)
    ]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0][0] != rows[0][1], "another document has another order"


# --------------------------------------------------------------------------------------------------------------- masked


def test_masked_models_see_all_other_tokens() -> None:
    model = noisy(MODELS["bert-memory"])
    for text, segment_length in ((TEXT, 40), ("ab 中文\n", 6)):
        ids = TOKENIZER.encode(text).tolist()
        expected = []
        for place, index in enumerate(ids):
            hidden = [*ids[:place], MASK, *ids[place + 1 :]]
            with torch.no_grad():
                state = model.adjusted(memory=None)(Batch(ids_BQ=torch.tensor([hidden]))).output.hidden_BQD[0, place]
            expected.append(float(log_probabilities(model, state)[index]))
        found = token_scores(model, text, by_token(segment_length=segment_length, batch_tokens=32))
        assert found == pytest.approx(expected, abs=1e-9)
    long = token_scores(model, TEXT * 3, by_token(segment_length=8))
    assert len(long) == 3 * len(TEXT)
    assert long[:4] != token_scores(model, TEXT, by_token(segment_length=40))[:4]


# ----------------------------------------------------------------------------------------------- side by side, in order


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["transformer-xl-wt103-base", "gpt", "xlnet-base", "per-layer", "bert-base"])
def test_reading_side_by_side_changes_nothing(name: str) -> None:
    config = MODELS[name]
    model = noisy(config)
    texts = ["", *some_texts(12, longest=24, seed=3), "中" * 60, "a"]
    order = "random" if config.objective == "permutation" else "forward"
    alone = []
    for number, text in enumerate(texts):
        before = [""] * number if order == "random" else []  # the number of a document decides its random order
        documents = itertools.chain(text_parts(before), text_parts([text]))
        *_, row = score(model, TOKENIZER, documents, ScoreSettings(order=order, segment_length=8, batch_tokens=1))
        alone.append(row.log_probability)
    for batch_tokens in (1, 30, 4096):
        settings = ScoreSettings(order=order, segment_length=8, batch_tokens=batch_tokens)
        rows = list(score_texts(model, TOKENIZER, texts, settings))
        assert [row.document for row in rows] == list(range(1, len(texts) + 1))
        assert [row.tokens for row in rows if isinstance(row, TextScore)] == list(map(len, texts))
        assert [row.log_probability for row in rows] == pytest.approx(alone, abs=1e-8)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, WITHOUT_EOD], ids=["eod", "none"])
def test_tokens_lines_and_documents_add_up_exactly(tokenizer: Tokenizer) -> None:
    model = noisy(XL)
    texts = [*some_texts(12, longest=60, seed=9), "\n\n中\n", "a\n" * 40]
    totals = ScoreTotals()
    settings = {"segment_length": 7, "batch_tokens": 64}
    tokens = list(score_texts(model, tokenizer, texts, ScoreSettings(by="token", **settings)))
    lines = list(score_texts(model, tokenizer, texts, ScoreSettings(by="line", **settings)))
    documents = list(score(model, tokenizer, text_parts(texts), ScoreSettings(**settings), totals=totals))
    for row in documents:
        assert isinstance(row, TextScore)
        own = [line for line in lines if line.document == row.document]
        assert sum(t.log_probability or 0.0 for t in tokens if t.document == row.document) == row.log_probability
        assert sum(line.log_probability for line in own) == row.log_probability
        assert sum(line.tokens for line in own) == row.tokens == len(texts[row.document - 1])
        assert sum(line.characters for line in own) == row.characters
        assert [line.line for line in own] == list(range(1, len(own) + 1))
        for line in own:
            inside = [t for t in tokens if (t.document, t.line) == (row.document, line.line)]
            assert sum(t.log_probability or 0.0 for t in inside) == line.log_probability
            assert "".join(texts[row.document - 1][t.start : t.end] for t in inside) == line.text
    assert sum(row.log_probability for row in reversed(documents)) == totals.log_probability
    assert totals.tokens == sum(map(len, texts))
    assert totals.scored == totals.tokens - (0 if "eod" in tokenizer.specials else len(texts))
    assert totals.perplexity == pytest.approx(math.exp(-totals.log_probability / totals.scored))
    assert totals.bits_per_character == pytest.approx(-totals.log_probability / math.log(2) / totals.characters)


def test_offsets_of_bytes_and_lines_without_tokens() -> None:
    tokenizer = ByteTokenizer()
    model = noisy(changed(XL, vocabulary={"size": tokenizer.size}))
    rows = [row for row in score_texts(model, tokenizer, ["a中b"], by_token()) if isinstance(row, TokenScore)]
    assert [(row.start, row.end) for row in rows] == [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]
    assert [row.token for row in rows][::4] == ["a", "b"]
    words = WordTokenizer(["one", "two"])
    found = list(score_texts(noisy(XL), words, ["one two\n\n  \ntwo", " \n"], ScoreSettings(by="line")))
    assert [(row.document, row.line, row.tokens) for row in found if isinstance(row, TextScore)] == [
        (1, 1, 2), (1, 2, 0), (1, 3, 0), (1, 4, 1), (2, 1, 0)]  # fmt: skip
    assert (found[1].log_probability, found[1].perplexity) == (0.0, None)  # type: ignore[union-attr]


def test_long_texts_are_read_in_constant_memory() -> None:
    """What was read ahead of what was scored stays bounded, however long the document is."""
    state = {"read": 0, "scored": 0, "ahead": 0}

    def parts() -> Iterator[TextPart]:
        for number in range(60):
            state["read"] += 100
            state["ahead"] = max(state["ahead"], state["read"] - state["scored"])
            yield TextPart("endless", "ab中文\n" * 20, number == 0)

    settings = ScoreSettings(by="line", segment_length=32, batch_tokens=32)
    model = noisy(changed(XL, num_layers=1)).float()
    for row in score(model, TOKENIZER, parts(), settings):
        assert isinstance(row, TextScore)
        state["scored"] += row.tokens
    assert state["scored"] == state["read"] == 6_000
    assert state["ahead"] <= 8 * 32 + 300, "a pool, a segment and a part"


# ------------------------------------------------------------------------------------------------------------ bad input


def test_broken_weights_name_the_document() -> None:
    for name in ("transformer-xl-enwik8-base", "xlnet-base"):
        model = noisy(MODELS[name])
        model.trunk.vocabulary.tables[0].data[TOKENIZER.encode("天")[0]] = float("nan")
        model.softmax.requires_grad_(False)
        with pytest.raises(DataError, match=r"finite; got nan in document \d \(text\)"):
            list(score_texts(model, TOKENIZER, ["ab", "a天b"]))


def test_what_cannot_be_scored() -> None:
    with pytest.raises(ConfigError, match='objective "permutation"; got \'backward\' for "causal"'):
        score_texts(noisy(XL), TOKENIZER, ["a"], ScoreSettings(order="backward"))
    with pytest.raises(DataError, match=r"document 2 \(text\) must have the 2 tokens of the order"):
        list(score_texts(noisy(XLNET), TOKENIZER, ["ab", "abc"], ScoreSettings(order=[1, 0])))
    with pytest.raises(DataError, match="in one segment of 2; got 3"):
        list(score_texts(noisy(XLNET), TOKENIZER, ["abc"], ScoreSettings(order=[1, 0, 2], segment_length=2)))
    bert = next(config for config in MODELS.values() if config.objective == "masked")
    with pytest.raises(DataError, match="special token mask"):
        score_texts(noisy(bert), WordTokenizer(["one"], specials=("unk",)), ["one"])
    for settings, message in (
        ({"order": [0, 0]}, "every position once"),
        ({"order": "sideways"}, "forward, backward or random"),
        ({"by": "word"}, "token, line or document"),
        ({"segment_length": 0}, "segment_length must be at least 1"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            ScoreSettings(**settings)  # type: ignore[arg-type]


def test_surrogates_count_as_the_replacement_character() -> None:
    model = noisy(XL)
    assert token_scores(model, "a\ud800b", by_token()) == token_scores(model, "a\ufffdb", by_token())
