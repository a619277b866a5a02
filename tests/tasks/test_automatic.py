"""What is chosen where settings are left open, from the lengths of the documents and the kind of the weights."""

from typing import Any

import pytest

from segue.config import FinetuneConfig, ReadConfig, changed
from segue.tasks.automatic import GRADIENT_TOKENS, LONGEST_MEMORY, Situation, choose_reading, choose_training
from tests.tiny import MODELS

XLNET = MODELS["xlnet-base"]


def situation(lengths: list[int], **more: Any) -> Situation:
    values: dict[str, Any] = {"segment_length": 64, "config": XLNET, "new_weights": False}
    return Situation(lengths=tuple(lengths), **(values | more))


def chosen(lengths: list[int], read: ReadConfig | None = None, **more: Any) -> ReadConfig:
    return choose_reading(read or ReadConfig(), situation(lengths, **more), summarised=True)[0]


def test_memory_and_gradient_reach_the_beginning_of_the_documents_at_hand() -> None:
    read, notes = choose_reading(ReadConfig(), situation([252] * 100), summarised=True)
    assert (read.memory_length, read.gradient_segments) == (192, 4)
    assert read.memory_length is not None
    assert read.memory_length + 64 >= 252
    assert any("read.memory_length=192" in note and "100%" in note for note in notes)
    assert (read.summary, read.pool) == ("mean", "mean")


def test_the_memory_covers_most_documents_and_has_a_limit() -> None:
    assert chosen([100] * 95 + [5000] * 5).memory_length == 64
    assert chosen([5000] * 100).memory_length == LONGEST_MEMORY
    assert chosen([100] * 100, config=changed(XLNET, memory={"length": 400})).memory_length == 400


def test_the_gradient_has_a_limit_in_tokens() -> None:
    assert chosen([10**6]).gradient_segments == GRADIENT_TOKENS // 64


def test_short_documents_of_a_pretrained_model_are_read_as_ever() -> None:
    large = situation([50, 60], config=changed(XLNET, width=768))
    read, notes = choose_reading(ReadConfig(), large, summarised=True)
    assert read == ReadConfig(gradient_segments=2, pool="last")
    assert not notes


def test_a_small_model_has_the_mean_of_its_tokens_as_summary() -> None:
    read, notes = choose_reading(ReadConfig(), situation([50, 60]), summarised=True)
    assert read == ReadConfig(gradient_segments=2, pool="last", summary="mean")
    assert notes == [
        f"read.summary=mean, the mean of all tokens of a segment: the model is small, with a width of {XLNET.width}"
    ]


def test_models_that_cannot_remember_get_no_memory() -> None:
    assert chosen([252] * 10, config=MODELS["bert-base"], segment_length=40).memory_length is None
    assert chosen([252] * 10, ReadConfig(carry=False)).memory_length is None


def test_what_is_set_stays() -> None:
    read = ReadConfig(memory_length=8, gradient_segments=1, summary="last", pool="max")
    assert choose_reading(read, situation([252], new_weights=True), summarised=True) == (read, [])


def test_answers_at_every_token_have_no_summary() -> None:
    read, _ = choose_reading(ReadConfig(), situation([252]), summarised=False)
    assert (read.summary, read.pool, read.memory_length) == (None, "last", 192)


@pytest.mark.parametrize(("items", "epochs"), [(10, 10), (1400, 7), (3200, 3), (100_000, 3)])
def test_small_tables_are_read_more_often(items: int, epochs: int) -> None:
    train, _ = choose_training(FinetuneConfig(), items=items, config=XLNET, new_weights=False)
    assert train.epochs == epochs


def test_new_weights_learn_faster_in_all_layers_and_with_dropout() -> None:
    large = changed(XLNET, width=768)
    old, _ = choose_training(FinetuneConfig(), items=100, config=large, new_weights=False)
    new, notes = choose_training(FinetuneConfig(), items=100, config=large, new_weights=True)
    assert (old.layer_decay, old.dropout) == (0.9, None)
    assert (new.layer_decay, new.dropout) == (1.0, 0.1)
    assert old.learning_rate == pytest.approx(12288 / 768**3)
    assert new.learning_rate == pytest.approx(0.2 / 768)
    assert any("train.dropout=0.1" in note for note in notes)
    given = FinetuneConfig(epochs=2, learning_rate=1e-4, layer_decay=0.5, dropout=0.3)
    assert choose_training(given, items=100, config=large, new_weights=True) == (given, [])


def test_a_memory_that_cannot_cover_the_documents_says_so() -> None:
    _, notes = choose_reading(ReadConfig(), situation([5000] * 100), summarised=True)
    assert (
        f"read.memory_length={LONGEST_MEMORY}: the largest that is chosen; 100% of the documents are longer" in notes[0]
    )
