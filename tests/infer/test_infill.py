"""Infilling: place by place is one pass under the same order, and the text outside the gaps stays as it was."""

import itertools
import math
from typing import Any

import pytest
import torch

from segue.config import changed
from segue.errors import ConfigError, DataError
from segue.infer.infill import ORDERS, Infilled, Order, infill, infill_text
from segue.infer.sampling import SamplingSettings
from segue.model import Batch, LanguageModel, Memory
from segue.model.masks import permutation_mask
from segue.text.pieces import SPACE_MARK
from segue.text.tokenizer import Tokenizer
from tests.text.samples import KINDS, LOSSLESS, make
from tests.tiny import MODELS, VOCABULARY, noisy, random_ids

PERMUTATION = {name: config for name, config in MODELS.items() if config.objective == "permutation"}
XLNET = MODELS["xlnet-base"]
WITH_GAPS: list[int | None] = [3, None, 5, None, None, 8, 9, None, 2]
GAPS = [1, 3, 4, 7]


def one_pass(model: LanguageModel, result: Infilled, memory: Memory | None = None) -> float:
    """The log-probability of what was filled, from a single forward pass under the order of filling."""
    ids_BQ = torch.tensor([result.ids])
    rank_BQ = torch.full_like(ids_BQ, -1)
    places = [one.position for one in result.filled]
    for rank, place in enumerate(places):
        rank_BQ[0, place] = rank
    batch = Batch(
        ids_BQ=ids_BQ,
        targets=ids_BQ[:, places],
        visible_BQQ=permutation_mask(rank_BQ, rank_BQ >= 0),
        predicted_BP=torch.tensor([places]),
    )
    with torch.no_grad():
        nll = model(batch, memory).nll
    return -float(nll.sum())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(PERMUTATION))
@pytest.mark.parametrize("order", [*ORDERS, [4, 1, 7, 3]])
def test_place_by_place_is_one_pass(name: str, order: Order | list[int]) -> None:
    model = noisy(PERMUTATION[name])
    result = infill(model, WITH_GAPS, order=order, settings=SamplingSettings(seed=1, repetition_penalty=1.3))
    assert result.log_probability == pytest.approx(one_pass(model, result), abs=1e-9)
    assert sorted(one.position for one in result.filled) == GAPS
    assert [t for p, t in enumerate(result.ids) if p not in GAPS] == [t for t in WITH_GAPS if t is not None]
    assert all(result.ids[one.position] == one.token for one in result.filled)


def test_another_order_is_another_factorisation() -> None:
    model = noisy(XLNET)
    result = infill(model, WITH_GAPS)
    turned = Infilled(ids=result.ids, filled=tuple(reversed(result.filled)))
    assert abs(one_pass(model, turned) - result.log_probability) > 1e-3


def test_probabilities_of_all_fillings_sum_to_one() -> None:
    small = changed(XLNET, vocabulary={"size": 5})
    model = noisy(small)
    for order in ([1, 3], [3, 1]):
        total = 0.0
        for pair in itertools.product(range(5), repeat=2):
            tokens: list[int | None] = [4, None, 2, None]
            forced = {place: [index] for place, index in zip((1, 3), pair, strict=True)}
            total += math.exp(infill(model, tokens, order=order, allowed=forced).log_probability)
        assert total == pytest.approx(1, abs=1e-9)


def test_orders() -> None:
    model = noisy(XLNET)

    def places(order: Any, seed: int = 0) -> list[int]:
        result = infill(model, WITH_GAPS, order=order, settings=SamplingSettings(seed=seed))
        return [one.position for one in result.filled]

    assert places("left_to_right") == GAPS
    assert places("right_to_left") == GAPS[::-1]
    assert places([7, 1, 4, 3]) == [7, 1, 4, 3]
    assert places("random", 5) == places("random", 5)
    assert len({tuple(places("random", seed)) for seed in range(10)}) > 4


def test_the_surest_place_is_filled_first() -> None:
    model = noisy(XLNET)
    forbidden = [0, 1, 2]
    settings = SamplingSettings(seed=2).forbidding(forbidden)
    only = {3: [10, 11, 12]}
    result = infill(model, WITH_GAPS, order="surest_first", settings=settings, allowed=only)
    tokens = list(WITH_GAPS)
    ranks = {place: -1 for place, token in enumerate(tokens) if token is not None}
    for step, one in enumerate(result.filled):
        sureness = {}
        for place in [place for place, token in enumerate(tokens) if token is None]:
            rank_BQ = torch.tensor([[ranks.get(other, 99) for other in range(len(tokens))]])
            batch = Batch(
                ids_BQ=torch.tensor([[0 if token is None else token for token in tokens]]),
                visible_BQQ=permutation_mask(rank_BQ, rank_BQ >= 0),
                predicted_BP=torch.tensor([[place]]),
            )
            with torch.no_grad():
                log_p = model.logits(model.trunk(batch).predicted_BPD[0, 0]).log_softmax(dim=0)
            may_come = [n for n in only.get(place, range(VOCABULARY)) if n not in forbidden]
            sureness[place] = max(float(log_p[n]) for n in may_come)
        assert one.position == max(sureness, key=lambda place: sureness[place])
        tokens[one.position] = one.token
        ranks[one.position] = step
    assert result.ids[3] in only[3]


def test_what_is_open_or_known_is_seen_from_both_sides() -> None:
    model = noisy(XLNET)
    greedy = SamplingSettings(greedy=True, top_log_probabilities=VOCABULARY)

    def first(tokens: list[int | None]) -> dict[int, float]:
        return dict(infill(model, tokens, order="left_to_right", settings=greedy).filled[0].alternatives)

    base = first([3, None, 5, None, 7])
    assert first([3, None, 5, None, 8]) != pytest.approx(base, abs=1e-6)  # the right side counts
    assert first([4, None, 5, None, 7]) != pytest.approx(base, abs=1e-6)
    assert len(base) == VOCABULARY
    assert math.fsum(math.exp(value) for value in base.values()) == pytest.approx(1, abs=1e-9)


def test_a_memory_is_seen() -> None:
    model = noisy(XLNET)
    assert XLNET.memory is not None
    with torch.no_grad():
        memory = model(Batch(ids_BQ=random_ids(1, 6))).memory
    result = infill(model, WITH_GAPS, memory=memory)
    assert result.log_probability == pytest.approx(one_pass(model, result, memory), abs=1e-9)
    assert abs(result.log_probability - one_pass(model, result)) > 1e-3


def test_the_penalty_looks_at_the_nearest_tokens_on_both_sides() -> None:
    model = noisy(XLNET)
    changed_something = 0
    for seed in range(20):
        known = random_ids(1, 7, seed)
        rank_BQ = torch.tensor([[-1, -1, -1, 0, -1, -1, -1]])
        batch = Batch(
            ids_BQ=known,
            visible_BQQ=permutation_mask(rank_BQ, rank_BQ >= 0),
            predicted_BP=torch.tensor([[3]]),
        )
        with torch.no_grad():
            logits = model.logits(model.trunk(batch).predicted_BPD[0, 0])
        plain = int(logits.argmax())
        for near in {int(known[0, 2]), int(known[0, 4])}:
            logits[near] = logits[near] / 4 if logits[near] > 0 else logits[near] * 4
        tokens: list[int | None] = known[0].tolist()
        tokens[3] = None
        settings = SamplingSettings(greedy=True, repetition_penalty=4.0, repetition_window=2)
        assert infill(model, tokens, settings=settings).ids[3] == int(logits.argmax())
        changed_something += plain != int(logits.argmax())
    assert changed_something


# --------------------------------------------------------------------------------------------------------- text


def model_for(tokenizer: Tokenizer, extra: int = 0) -> LanguageModel:
    return noisy(changed(XLNET, vocabulary={"size": tokenizer.size + extra}))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    "text", ["The old ___ counted the ___ships.", "守塔的___每天清晨，___船只", "___", "海___ ___"]
)
def test_the_text_outside_the_gaps_stays(kind: str, text: str) -> None:
    tokenizer = make(kind)
    model = model_for(tokenizer, extra=3)
    for order in ORDERS:
        result = infill_text(model, tokenizer, text, lengths=2, order=order, settings=SamplingSettings(seed=3))
        before, *_, after = text.split("___")
        assert result.text.startswith(before)
        assert result.text.endswith(after)
        pieces = text.split("___")
        spaced = kind in ("unigram", "bpe", "byte pairs") or kind.startswith(("released", "fast"))
        rebuilt = pieces[0]
        for fill, part in zip(result.gaps, pieces[1:], strict=True):
            if spaced and rebuilt.endswith(" "):
                assert fill.startswith(" ")
                rebuilt = rebuilt[:-1]
            rebuilt += fill + part
        assert result.text == rebuilt
        if kind in LOSSLESS:
            assert tokenizer.decode(result.result.ids) == result.text
        specials = set(tokenizer.specials.values())
        assert len(result.result.filled) == 2 * text.count("___")
        assert all(one.token not in specials and one.token < tokenizer.size for one in result.result.filled)
        assert result.pieces == tuple(tokenizer.token(one.token) for one in result.result.filled)


def test_a_text_begins_after_the_end_of_another() -> None:
    tokenizer = make("unigram")
    result = infill_text(model_for(tokenizer), tokenizer, "___海浪").result
    assert result.ids[0] == tokenizer.specials["eod"]
    assert [one.position for one in result.filled] == [1, 2, 3]


def test_lengths_for_each_gap_and_marks_side_by_side() -> None:
    tokenizer = make("characters")
    model = model_for(tokenizer)
    result = infill_text(model, tokenizer, "海___的______。", lengths=[1, 2, 3])
    assert [len(fill) for fill in result.gaps] == [1, 5]
    assert len(result.text) == len("海的。") + 6
    marked = infill_text(model, tokenizer, "海[?]的", gap="[?]", lengths=4)
    assert len(marked.text) == 6


def test_a_released_tokeniser_puts_no_space_after_a_gap() -> None:
    tokenizer = make("released")
    assert tokenizer.token(int(tokenizer.encode("船只")[0])).startswith(SPACE_MARK)
    result = infill_text(model_for(tokenizer), tokenizer, "守塔的___船只", lengths=1).result
    shown = [tokenizer.token(index) for index in result.ids[result.filled[0].position + 1 :]]
    assert "".join(shown) == "船只"


def test_models_and_texts_that_cannot_be_filled() -> None:
    with pytest.raises(DataError, match=r'objective "permutation".*got "causal"'):
        infill(noisy(MODELS["gpt"]), [1, None])
    with pytest.raises(DataError, match='got "masked"'):
        infill(noisy(MODELS["bert-base"]), [1, None])
    model = noisy(XLNET)
    with pytest.raises(DataError, match="got 2 tokens without one"):
        infill(model, [1, 2])
    with pytest.raises(DataError, match=f"ids must be from 0 to {VOCABULARY - 1}; got 99"):
        infill(model, [99, None])
    with pytest.raises(DataError, match=r"got \[1, 1\] for the places \[1, 2\]"):
        infill(model, [3, None, None], order=[1, 1])
    with pytest.raises(ConfigError, match="order must be one of left_to_right"):
        infill(model, [3, None], order="backwards")  # type: ignore[arg-type]
    learned = noisy(changed(XLNET, positions={"kind": "absolute", "encoding": "learned", "max_length": 8}))
    with pytest.raises(DataError, match="fit into the 8 positions of the model; got 9 tokens"):
        infill(learned, [1] + [None] * 8)

    tokenizer = make("unigram")
    wide = model_for(tokenizer)
    for wrong, message in [
        ({"text": "no gap"}, "Write ___ where words are missing"),
        ({"text": ""}, "needs a gap"),
        ({"lengths": [1]}, "got 1 for 2 gaps"),
        ({"lengths": [1, 0]}, "got a length of 0"),
        ({"lengths": -1}, "got a length of -1"),
    ]:
        arguments: dict[str, Any] = {"text": "a ___ b ___", **wrong}
        with pytest.raises(DataError, match=message):
            infill_text(wide, tokenizer, arguments.pop("text"), **arguments)
    with pytest.raises(ConfigError, match="the marker of a gap"):
        infill_text(wide, tokenizer, "a ___", gap="")
    with pytest.raises(DataError, match="Use the tokeniser of the model"):
        infill_text(model, tokenizer, "a ___")
