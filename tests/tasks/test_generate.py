"""A text for a text: the loss and the search agree with the model read at once, for every model that can predict."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import segue
from segue.config import ModelConfig, ReadConfig, changed
from segue.errors import ConfigError, DataError
from segue.infer.beam import Hypothesis
from segue.model import Batch, LanguageModel
from segue.model.language_model import conditional_batch
from segue.tasks.folder import TaskModel, load_task_model, save_task_model
from segue.tasks.generate import GENERATE, Generate, GenerateSettings, mostly_chinese
from segue.tasks.layout import Layout
from segue.tasks.predict import answer_rows, answers_in_order
from segue.tasks.reader import Reader
from segue.tasks.task import Example, Item, Prediction, UnusableRowError
from segue.text.files import load_tokenizer
from segue.text.words import WordTokenizer
from segue.train.finetune import Ended, Event, Prepared, Request, Updated, finetune, finetune_settings
from tests.tiny import MODELS, VOCABULARY, noisy

WORDS = [f"w{n}" for n in range(VOCABULARY - 7)]
TOKENIZER = WordTokenizer(WORDS)
SEP, EOD = TOKENIZER.specials["sep"], TOKENIZER.specials["eod"]
PREDICTING = {
    name: config
    for name, config in MODELS.items()
    if config.objective != "masked" and getattr(config.positions, "count_from", "start") != "end"
}


def reading_config(config: ModelConfig, *, memory: int = 6) -> ModelConfig:
    """As fine-tuning changes it: a memory where positions are relative, none elsewhere."""
    initial = config.memory.initial if config.memory is not None else "empty"
    config = changed(config, memory=None)
    if config.positions.kind in ("absolute", "per_layer"):
        return config
    return changed(config, memory={"length": memory, "initial": initial, "backprop_segments": 1})


def sentence(length: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, length).tolist())


def examples(*lengths: tuple[int, int]) -> list[Example]:
    return [
        Example(number=n, texts=(sentence(source, n),), gold=(sentence(target, 100 + n),))
        for n, (source, target) in enumerate(lengths, start=1)
    ]


def make(
    config: ModelConfig,
    *,
    max_length: int | None = None,
    segment_length: int = 12,
    max_target_length: int = 4,
    beam: int = 3,
) -> tuple[Generate, Layout, Reader]:
    settings = GenerateSettings(max_target_length=max_target_length, beam=beam, n_best=min(beam, 2))
    layout = Layout(TOKENIZER, config, max_length=max_length)
    return Generate(settings=settings), layout, Reader(ReadConfig(), segment_length=segment_length)


def items_of(task: Generate, layout: Layout, rows: list[Example]) -> list[Item]:
    return [item for row in rows for item in task.items(row, layout)]


def costs(model: LanguageModel, source: list[int], targets: list[list[int]]) -> torch.Tensor:
    """-log p of each target of one length, source and target read at once."""
    target_BT = torch.tensor(targets)
    result = model(conditional_batch(model.config, torch.tensor([source] * len(targets)), target_BT))
    total_B: torch.Tensor = result.nll[:, -target_BT.shape[1] :].sum(dim=1)
    return total_B


# ------------------------------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "transformer-xl-lm1b", "xlnet-base", "absolute"])
def test_the_loss_is_the_mean_over_the_target_tokens(name: str) -> None:
    model = noisy(reading_config(PREDICTING[name]))
    task, layout, reader = make(model.config)
    rows = examples((3, 4), (5, 1), (2, 2), (6, 3))
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        source = [*TOKENIZER.encode(row.texts[0]).tolist(), SEP]
        target = [*TOKENIZER.encode(row.gold[0]).tolist(), EOD]
        total += costs(model, source, [target])[0]
        count += len(target)
    loss = task.loss(model, items_of(task, layout, rows), reader, class_weights=None)
    torch.testing.assert_close(loss, total / count, rtol=1e-9, atol=1e-9)
    assert loss.requires_grad


def test_a_causal_model_gives_the_loss_of_plain_language_modelling() -> None:
    model = noisy(reading_config(PREDICTING["transformer-xl-enwik8-base"]))
    task, layout, reader = make(model.config)
    (item,) = items_of(task, layout, examples((4, 3)))
    ids = torch.from_numpy(item.documents[0].ids)[None]
    assert ids[0, 4] == SEP
    assert ids[0, -1] == EOD
    log_p = model.logits(model.trunk(Batch(ids_BQ=ids[:, :-1])).hidden_BQD).log_softmax(dim=-1)
    expected = -sum(log_p[0, n - 1, ids[0, n]] for n in range(5, 9)) / 4
    torch.testing.assert_close(task.loss(model, [item], reader, class_weights=None), expected)
    assert reader.tokens == reader.positions == 8


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base"])
def test_long_and_short_sources_in_one_batch_are_as_each_alone(name: str) -> None:
    model = noisy(reading_config(PREDICTING[name]))
    task, layout, reader = make(model.config)
    rows = examples((40, 3), (3, 4), (9, 2), (21, 4), (8, 9))
    items = items_of(task, layout, rows)
    together = task.loss(model, items, reader, class_weights=None)
    each = [
        (task.loss(model, [item], reader, class_weights=None), len(item.documents[0]) - item.extra.source)
        for item in items
    ]
    expected = sum(loss * count for loss, count in each) / sum(count for _, count in each)
    torch.testing.assert_close(together, expected, rtol=1e-9, atol=1e-9)


def test_a_causal_model_with_memory_enough_reads_segments_as_if_they_were_one() -> None:
    model = noisy(reading_config(PREDICTING["transformer-xl-enwik8-base"], memory=100))
    task, layout, short = make(model.config)
    items = items_of(task, layout, examples((50, 3), (30, 4), (2, 2)))
    long = Reader(ReadConfig(), segment_length=500)
    torch.testing.assert_close(
        task.loss(model, items, short, class_weights=None), task.loss(model, items, long, class_weights=None)
    )


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base"])
@pytest.mark.parametrize("place", [0, 14, 22])
def test_the_beginning_of_a_long_source_reaches_the_target_through_memory(name: str, place: int) -> None:
    # 24 tokens and SEP: 1 + 12 + 12 - 5 in the last segment; a memory of 30 holds what is before.
    model = noisy(reading_config(PREDICTING[name], memory=30))
    task, layout, reader = make(model.config)
    (item,) = items_of(task, layout, examples((24, 3)))
    ids = item.documents[0].ids.copy()
    ids[place] = ids[place] - 1 if ids[place] > VOCABULARY - 3 else ids[place] + 1
    other = replace(item, documents=(replace(item.documents[0], ids=ids),))
    before, after = (task.loss(model, [one], reader, class_weights=None) for one in (item, other))
    assert abs(float((before - after).detach())) > 1e-9


@pytest.mark.parametrize(("gradient_segments", "reached"), [(1, 1), (2, 2), (3, 3)])
def test_gradients_reach_the_last_segments_only(gradient_segments: int, reached: int) -> None:
    config = changed(reading_config(PREDICTING["transformer-xl-enwik8-base"]), vocabulary={"tie_weights": False})
    steps = {"length": 30} | ({"backprop_segments": gradient_segments - 1} if gradient_segments > 1 else {})
    model = noisy(changed(changed(config, memory=None), memory=steps))
    task, layout, _ = make(config)
    reader = Reader(ReadConfig(gradient_segments=gradient_segments), segment_length=12)
    (item,) = items_of(task, layout, examples((40, 3)))
    ids = item.documents[0].ids.copy()
    # Every segment of the source has a token of its own: 10, 12 and 12 of them, and 7 beside the target.
    ids[:41] = np.repeat([10, 11, 12, 13], [10, 12, 12, 7])
    ids[41:] = [7, 7, 7, EOD]
    changed_item = replace(item, documents=(replace(item.documents[0], ids=ids),))
    torch.autograd.backward(task.loss(model, [changed_item], reader, class_weights=None))
    gradient = next(p.grad for n, p in model.named_parameters() if n.startswith("trunk.vocabulary."))
    assert gradient is not None
    assert gradient.shape[0] == VOCABULARY
    assert [bool(gradient[10 + number].any()) for number in range(4)] == [number >= 4 - reached for number in range(4)]


def test_padding_is_counted() -> None:
    model = noisy(reading_config(PREDICTING["transformer-xl-enwik8-base"]))
    task, layout, reader = make(model.config)
    task.loss(model, items_of(task, layout, examples((3, 4), (2, 1))), reader, class_weights=None)
    assert (reader.tokens, reader.positions) == (8 + 5, 16)  # the last token of the longest row is not read
    task.loss(model, items_of(task, layout, examples((19, 3))), reader, class_weights=None)
    assert (reader.tokens, reader.positions) == (13 + 23, 16 + 23)


# ----------------------------------------------------------------------------------------------------- the search


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PREDICTING)
def test_what_is_written_has_the_probability_that_the_loss_gives_it(name: str) -> None:
    model = noisy(reading_config(PREDICTING[name]))
    task, layout, reader = make(model.config)
    rows = examples((4, 2), (9, 1), (2, 3))
    if model.config.memory is not None:
        rows += examples((40, 2), (14, 1))
    items = items_of(task, layout, [replace(row, gold=None) for row in rows])
    with torch.no_grad():
        for item, found in zip(items, task.answers(model, items, reader), strict=True):
            assert len(found) == 2
            assert found[0].score >= found[1].score
            for one in found:
                assert 1 <= len(one.tokens) <= 4
                assert set(one.tokens).isdisjoint(TOKENIZER.specials.values())
                ids = np.array([*item.documents[0].ids, *one.tokens, EOD])
                document = replace(item.documents[0], ids=ids, segments=np.zeros_like(ids))
                loss = task.loss(model, [replace(item, documents=(document,))], reader, class_weights=None)
                assert one.mean_log_probability == pytest.approx(-float(loss), abs=1e-5)


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base"])
def test_a_wide_beam_finds_the_likeliest_of_all_texts(name: str) -> None:
    model = noisy(reading_config(PREDICTING[name]))
    task, layout, reader = make(model.config, max_target_length=2, beam=400)
    items = items_of(task, layout, [replace(row, gold=None) for row in examples((3, 1), (6, 1))])
    words = range(7, VOCABULARY)
    with torch.no_grad():
        for item, found in zip(items, task.answers(model, items, reader), strict=True):
            source = item.documents[0].ids.tolist()
            texts = [[a] for a in words] + [[a, b] for a in words for b in words]
            one, two = ([[*text, EOD] for text in texts if len(text) == n] for n in (1, 2))
            values = [-float(cost) for some in (one, two) for cost in costs(model, source, some)]
            scores = [value / ((5 + len(text) + 1) / 6) ** 0.6 for value, text in zip(values, texts, strict=True)]
            best = int(np.argmax(scores))
            assert list(found[0].tokens) == texts[best]
            assert found[0].log_probability == pytest.approx(values[best], abs=1e-5)


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base"])
def test_answers_do_not_depend_on_the_batch_or_on_the_target(name: str) -> None:
    model = noisy(reading_config(PREDICTING[name]))
    task, layout, reader = make(model.config)
    rows = examples((4, 2), (40, 3), (9, 9), (14, 1))
    items = items_of(task, layout, rows)
    blind = items_of(task, layout, [replace(row, gold=None) for row in rows])
    with torch.no_grad():
        together = task.answers(model, items, reader)
        for found, item in zip(together, blind, strict=True):
            (single,) = task.answers(model, [item], reader)
            assert [one.tokens for one in single] == [one.tokens for one in found]
            np.testing.assert_allclose([one.score for one in single], [one.score for one in found], atol=1e-6)


# ------------------------------------------------------------------------------------------------------ rows, data


def test_a_dialogue_is_joined_with_separators() -> None:
    task, layout, _ = make(PREDICTING["xlnet-base"])
    example = task.example(1, {"source": ["w1 w2", "", "w3"], "target": ["w4", "w5"]}, labelled=True)
    (item,) = task.items(example, layout)
    ids = [TOKENIZER.encode(text)[0] for text in ("w1", "w2", "w3", "w4")]
    assert item.documents[0].ids.tolist() == [ids[0], ids[1], SEP, ids[2], SEP, ids[3], EOD]
    assert item.extra.source == 5
    assert example.gold == ("w4", "w5")


def test_sources_are_cut_only_if_asked_and_counted() -> None:
    task, layout, _ = make(PREDICTING["xlnet-base"], max_length=6)
    items = items_of(task, layout, examples((9, 3), (5, 9)))
    assert [(item.extra.source, len(item.documents[0])) for item in items] == [(6, 10), (6, 16)]
    assert items[0].documents[0].ids[5] == SEP
    assert layout.truncated == 1


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"source": " ", "target": "a"}, "an empty source"),
        ({"source": "a", "target": None}, "an empty target"),
        ({"source": [], "target": "a"}, "an empty source"),
    ],
)
def test_rows_without_text_are_unusable(row: dict[str, object], rule: str) -> None:
    task = make(PREDICTING["xlnet-base"])[0]
    with pytest.raises(UnusableRowError, match=rule):
        task.example(1, row, labelled=True)


def test_a_turn_that_is_no_text_is_an_error() -> None:
    task = make(PREDICTING["xlnet-base"])[0]
    with pytest.raises(DataError, match=r"list of texts; got .*speaker"):
        task.example(1, {"source": [{"speaker": "A", "text": "hello"}], "target": "a"}, labelled=True)


def test_models_and_tokenisers_that_cannot_serve() -> None:
    task, layout, _ = make(MODELS["bert-base"])
    (row,) = examples((3, 2))
    with pytest.raises(ConfigError, match=r'"causal" or "permutation".*got "masked"'):
        task.items(row, layout)
    without = Layout(WordTokenizer(WORDS, specials=("unk",)), PREDICTING["xlnet-base"])
    with pytest.raises(DataError, match="needs a tokeniser with sep, eod or eop"):
        task.items(row, without)
    from_end = changed(PREDICTING["absolute"], memory=None, positions={"count_from": "end"})
    with pytest.raises(ConfigError, match="how long the target is"):
        task.items(row, Layout(TOKENIZER, from_end))
    with pytest.raises(ConfigError, match=r"Set task.beam=9"):
        GENERATE.learn([], GenerateSettings(n_best=9))


def test_a_tokeniser_with_one_mark_only_uses_it_for_both() -> None:
    task = make(PREDICTING["xlnet-base"])[0]
    tokenizer = WordTokenizer(WORDS, specials=("unk", "eod"))
    (item,) = task.items(examples((2, 1))[0], Layout(tokenizer, PREDICTING["xlnet-base"]))
    assert np.flatnonzero(item.documents[0].ids == tokenizer.specials["eod"]).tolist() == [2, 4]


def test_learned_positions_must_hold_source_and_target() -> None:
    config = changed(PREDICTING["absolute"], memory=None, positions={"encoding": "learned", "max_length": 48})
    task, layout, reader = make(config)
    assert len(task.items(examples((42, 4))[0], layout)) == 1
    with pytest.raises(
        DataError, match=r"48 positions .* got 44 tokens and room for 5 in record 1. Set read.max_length=43"
    ):
        task.items(examples((43, 4))[0], layout)
    items = items_of(task, Layout(TOKENIZER, config, max_length=43), examples((60, 4)))
    with torch.no_grad():
        assert len(task.answers(noisy(config), items, reader)) == 1


def test_chinese_is_noticed() -> None:
    assert mostly_chinese("他在 iPhone 上看电影。")
    assert not mostly_chinese("He watches 电影 on his phone.")
    assert not mostly_chinese("... !")


def test_broken_bytes_are_not_written(english_model: Path) -> None:
    tokenizer = load_tokenizer(english_model / "tokenizer")
    ids = [*tokenizer.encode("a room").tolist(), *tokenizer.encode("\U0001f600").tolist()[:2]]
    assert "\ufffd" in tokenizer.decode(ids)
    task = Generate(settings=GenerateSettings())
    example = Example(number=1, texts=("x",))
    items = task.items(example, Layout(tokenizer, PREDICTING["xlnet-base"]))
    one = Hypothesis(tokens=tuple(ids), log_probability=-1.0, score=-1.0)
    assert task.prediction(example, items, [[one]]).columns["prediction"] == "a room"


@pytest.mark.parametrize(("gold", "tokenize"), [("他 在看电影。", "zh"), ("He is at the cinema now.", "13a")])
def test_measures_are_those_of_sacrebleu(gold: str, tokenize: str) -> None:
    from sacrebleu import corpus_bleu, corpus_chrf

    task = Generate(settings=GenerateSettings())
    golds = [(gold, "x"), (gold[:-2],), ("other",)]
    rows = [Example(number=n, texts=("s",), gold=texts) for n, texts in enumerate(golds)]
    predicted = [gold, gold, "word"]
    predictions = [Prediction(value=text, columns={}) for text in predicted]
    found = task.measure(rows, predictions)
    streams: Any = [[texts[0] for texts in golds], ["x", None, None]]
    assert found["bleu"].value == pytest.approx(corpus_bleu(predicted, streams, tokenize=tokenize).score)
    assert found["chrf"].value == pytest.approx(corpus_chrf(predicted, streams).score)
    assert found["exact_match"].value == pytest.approx(1 / 3)
    assert task.metric in found
    assert task.compare(rows[0], predictions[0]).badness == 0
    assert task.compare(rows[2], predictions[2]).badness > task.compare(rows[1], predictions[1]).badness > 0


# --------------------------------------------------------------------------------------------------- the whole way

PAIRS = [("a", "x"), ("b", "y"), ("ab", "xy"), ("ba", "yx"), ("bb", "yy"), ("aa", "xx")]
CHINESE_PAIRS = [("男", "书"), ("妻", "衣"), ("男妻", "书衣"), ("妻男", "衣书"), ("妻妻", "衣衣"), ("男男", "书书")]


def run(folder: Path, model: Path, pairs: list[tuple[str, str]], *overrides: str) -> Iterator[Event]:
    table, few = folder / "train.jsonl", folder / "valid.jsonl"
    lines = [json.dumps({"src": source, "tgt": target}, ensure_ascii=False) + "\n" for source, target in pairs]
    table.write_text("".join(lines * 40), encoding="utf-8")
    few.write_text("".join(lines), encoding="utf-8")
    given = ["train.batch_size=6", "train.validations=1", "task.max_target_length=12", *overrides]
    request = Request(
        model=str(model),
        kind=GENERATE,
        train=str(table),
        valid=str(few),
        settings=finetune_settings(GENERATE, {}, given),
    )
    return finetune(request, folder / "run")


@pytest.mark.parametrize(
    ("language", "objective", "epochs"),
    [pytest.param("english", "causal", 6, marks=pytest.mark.long), ("chinese", "permutation", 3)],
)
def test_a_model_learns_to_translate_and_comes_back_from_disk(
    tmp_path: Path,
    model_of_each_objective: dict[str, Path],
    chinese_model: Path,
    language: str,
    objective: str,
    epochs: int,
) -> None:
    model = chinese_model if language == "chinese" else model_of_each_objective[objective]
    pairs = CHINESE_PAIRS if language == "chinese" else PAIRS
    events = list(run(tmp_path, model, pairs, f"train.epochs={epochs}", "train.learning_rate=0.005", "task.n_best=2"))
    assert next(e for e in events if isinstance(e, Prepared)).preview[0].endswith("<eod>")
    assert any(isinstance(e, Updated) and 0 <= e.padding_share < 0.5 for e in events)
    ended = events[-1]
    assert isinstance(ended, Ended)
    metrics = ended.judged[0].metrics
    assert metrics["exact_match"].value == 1.0
    assert metrics["chrf"].value == pytest.approx(100)
    made = load_task_model(tmp_path / "run")
    rows = [(n, {"source": source}) for n, (source, _) in enumerate(pairs)]
    found = list(answer_rows(made, [*rows, (9, {"source": ""})]))
    assert found[-1].problem == "an empty source"
    predictions = [one.prediction for one in found[:-1] if one.prediction is not None]
    assert [prediction.columns["prediction"] for prediction in predictions] == [target for _, target in pairs]
    columns = predictions[0].columns
    assert len(columns["n_best"]) == 2
    assert columns["n_best"][0] == {name: columns[name] for name in ("prediction", "log_probability")}
    assert -0.7 < columns["log_probability"] < 0
    assert predictions[0].confidence == pytest.approx(math.exp(columns["log_probability"]))
    loaded = segue.load(str(tmp_path / "run" / "best"))
    assert isinstance(loaded, LanguageModel)
    for name, parameter in made.model.state_dict().items():
        assert torch.equal(parameter, loaded.state_dict()[name])


def test_a_folder_is_saved_again_over_itself(tmp_path: Path, model_of_each_objective: dict[str, Path]) -> None:
    folder = model_of_each_objective["causal"]
    made = TaskModel(
        kind=GENERATE,
        task=Generate(settings=GenerateSettings(no_repeat=2, max_target_length=8)),
        model=segue.load(str(folder)),
        tokenizer=load_tokenizer(folder / "tokenizer"),
        read=ReadConfig(),
        segment_length=64,
    )
    for _ in range(2):
        save_task_model(made, tmp_path / "made", tokenizer=folder / "tokenizer")
    again = load_task_model(tmp_path / "made")
    assert again.task == made.task
    rows = [made.task.example(n, {"source": f"number {n}"}, labelled=False) for n in range(3)]
    assert answers_in_order(again, rows) == answers_in_order(made, rows)


def test_a_masked_model_is_refused_before_training(tmp_path: Path, model_of_each_objective: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match='got "masked"'):
        next(run(tmp_path, model_of_each_objective["masked"], PAIRS))
