"""Vectors: equal to their definitions, whatever is read side by side, with running pools that need no memory."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.errors import ConfigError, DataError
from segue.infer.documents import TextPart, text_parts
from segue.infer.embed import Embedding, EmbedSettings, EmbedTotals, embed, embed_texts
from segue.model import Batch, LanguageModel
from segue.model.reading import TokenDocument as Laid
from segue.model.reading import read_documents
from segue.text.words import WordTokenizer
from tests.infer.texts import TOKENIZER, WITHOUT_EOD, some_texts
from tests.tiny import MODELS, noisy

TEXT = "ab 中文\n天地 cd\n\n人字gh a"
EOD, CLS, SEP = (TOKENIZER.specials[name] for name in ("eod", "cls", "sep"))
XL = MODELS["transformer-xl-enwik8-base"]
XLNET = MODELS["xlnet-base"]


@torch.no_grad()
def layers_of(model: LanguageModel, ids: list[int]) -> list[np.ndarray]:
    """Every layer at every position, in one forward."""
    output = model.trunk(Batch(ids_BQ=torch.tensor([ids])))
    return [layer[0].numpy() for layer in (*output.layers[:-1], output.hidden_BQD)]


def pooled(states: np.ndarray, pool: str) -> np.ndarray:
    return {"mean": states.mean(0), "max": states.max(0), "first": states[0], "last": states[-1]}[pool]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("pool", ["mean", "max", "first", "last"])
@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base", "gpt", "bert-base", "pre-norm"])
def test_a_text_in_one_segment(name: str, pool: str) -> None:
    model = noisy(changed(MODELS[name], memory={"length": 40}) if MODELS[name].memory else MODELS[name])
    framed = name == "bert-base" and pool in ("mean", "max")  # CLS A SEP, all of it pooled
    first = [] if model.config.objective == "masked" else [EOD]
    ids = TOKENIZER.encode(TEXT).tolist()
    layers = layers_of(model, [CLS, *ids, SEP] if framed else first + ids)
    for layer, expected in enumerate(layers):
        for asked in (layer, layer - len(layers)):
            settings = EmbedSettings(layer=asked, pool=pool, normalise=False, segment_length=40)  # type: ignore[arg-type]
            found = embed_texts(model, TOKENIZER, [TEXT], settings)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, pooled(expected[len(first) :], pool)[None], rtol=1e-6, atol=1e-6)
    settings = EmbedSettings(pool=pool, segment_length=40)  # type: ignore[arg-type]
    unit = pooled(layers[-1][len(first) :], pool)
    found = embed_texts(model, TOKENIZER, [TEXT], settings)
    np.testing.assert_allclose(found[0], unit / np.linalg.norm(unit), rtol=1e-5, atol=1e-6)


def test_causal_memory_is_the_reading_token_by_token() -> None:
    model = noisy(XL)
    memory, states = None, []
    for index in [EOD, *TOKENIZER.encode(TEXT).tolist()]:
        with torch.no_grad():
            output = model.trunk(Batch(ids_BQ=torch.tensor([[index]])), memory)
        memory = output.memory
        states.append(output.hidden_BQD[0, 0].numpy())
    for segment_length in (1, 4, 64):
        found = embed_texts(model, TOKENIZER, [TEXT], EmbedSettings(normalise=False, segment_length=segment_length))
        np.testing.assert_allclose(found[0], np.mean(states[1:], axis=0), rtol=1e-5, atol=1e-6)


def test_bidirectional_memory_segment_by_segment() -> None:
    """20 positions in segments of 7: the last but one takes the remainder, the last is full."""
    model = noisy(XLNET)
    remembering = model.adjusted(memory={"reuse_length": None})
    ids = [EOD, *TOKENIZER.encode(TEXT).tolist()]
    assert len(ids) == 20
    memory, states = None, []
    for begin, end in itertools.pairwise([0, 7, 13, 20]):
        with torch.no_grad():
            output = remembering.trunk(Batch(ids_BQ=torch.tensor([ids[begin:end]])), memory)
        memory = output.memory
        states += list(output.hidden_BQD[0].numpy())
    found = embed_texts(model, TOKENIZER, [TEXT], EmbedSettings(normalise=False, segment_length=7))
    np.testing.assert_allclose(found[0], np.mean(states[1:], axis=0), rtol=1e-5, atol=1e-6)
    windows = embed_texts(model, TOKENIZER, [TEXT], EmbedSettings(normalise=False, segment_length=7, memory=False))
    assert np.abs(windows - found).max() > 1e-3


def test_windows_repeat_half_of_what_came_before() -> None:
    model = noisy(MODELS["bert-base"])
    ids = TOKENIZER.encode(TEXT).tolist()
    laid = [CLS, *ids, SEP]
    states = []
    for begin, end, new in ((0, 8, 0), (4, 12, 4), (8, 16, 4), (12, 20, 4), (16, 21, 4)):
        states += list(layers_of(model, laid[begin:end])[-1][new:])
    assert len(states) == len(laid) == 21
    found = embed_texts(model, TOKENIZER, [TEXT], EmbedSettings(normalise=False, segment_length=8))
    np.testing.assert_allclose(found[0], np.mean(states, axis=0), rtol=1e-5, atol=1e-6)


def test_cls_is_what_the_heads_of_fine_tuning_read() -> None:
    for name in ("xlnet-base", "bert-base", "transformer-xl-enwik8-base"):
        model = noisy(MODELS[name])
        ids = TOKENIZER.encode(TEXT)
        masked = model.config.objective == "masked"
        laid = np.array([CLS, *ids, SEP] if masked else [*ids, SEP, CLS])
        segments = np.where((laid == CLS) & (model.config.segments == "relative"), 2, 0)
        with torch.no_grad():
            reading = read_documents(model.trunk, [Laid(ids=laid, segments=segments)], segment_length=40)
        expected = reading.hidden[0][0, 0 if masked else -1].numpy()
        settings = EmbedSettings(pool="cls", normalise=False, segment_length=40)
        if model.config.memory is not None:  # so that nothing is out of reach
            model = model.adjusted(memory={"length": 40})
        found = list(embed(model, TOKENIZER, text_parts([TEXT]), settings))
        np.testing.assert_allclose(found[0].vector, expected, rtol=1e-5, atol=1e-6)
        assert found[0].tokens == len(ids), "special tokens are no tokens of the text"


def test_lines_are_pooled_with_what_comes_before_them() -> None:
    model = noisy(changed(XL, memory={"length": 40}))
    states = layers_of(model, [EOD, *TOKENIZER.encode(TEXT).tolist()])[-1][1:]
    lines = TEXT.splitlines(keepends=True)
    borders = np.cumsum([0, *map(len, lines)])
    for pool in ("mean", "max", "first", "last"):
        settings = EmbedSettings(by="line", pool=pool, normalise=False, segment_length=5)  # type: ignore[arg-type]
        rows = list(embed(model, TOKENIZER, text_parts([TEXT, "a"]), settings))
        assert [(row.document, row.line, row.text, row.tokens) for row in rows] == [
            *((1, number, line, len(line)) for number, line in enumerate(lines, start=1)),
            (2, 1, "a", 1),
        ]
        for row, (begin, end) in zip(rows, itertools.pairwise(borders), strict=False):
            np.testing.assert_allclose(row.vector, pooled(states[begin:end], pool), rtol=1e-5, atol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["transformer-xl-wt103-base", "xlnet-base", "gpt", "bert-memory"])
@pytest.mark.parametrize("by", ["document", "line"])
def test_reading_side_by_side_changes_nothing(name: str, by: str) -> None:
    model = noisy(MODELS[name])
    texts = ["", *some_texts(12, longest=24, seed=4), "中" * 60, "a"]

    def found(batch_tokens: int, texts: list[str]) -> list[Embedding]:
        settings = EmbedSettings(by=by, segment_length=8, batch_tokens=batch_tokens)  # type: ignore[arg-type]
        return list(embed(model, TOKENIZER, text_parts(texts), settings))

    alone = np.stack([row.vector for text in texts for row in found(1, [text])])
    for batch_tokens in (1, 30, 4096):
        rows = found(batch_tokens, texts)
        assert [row.document for row in rows] == sorted(row.document for row in rows)
        np.testing.assert_allclose(np.stack([row.vector for row in rows]), alone, atol=1e-6)


def test_texts_without_a_token_are_zeros_in_their_place() -> None:
    words, totals = WordTokenizer(["one", "two"]), EmbedTotals()
    texts = ["one two", "  ", "", "two\n\none"]
    rows = list(embed(noisy(XL), words, text_parts(texts), totals=totals))
    assert [float(np.linalg.norm(row.vector)) for row in rows] == pytest.approx([1, 0, 0, 1])
    assert (totals.documents, totals.vectors, totals.empty, totals.tokens) == (4, 4, 2, 4)
    lines = list(embed(noisy(XL), words, text_parts(texts), EmbedSettings(by="line")))
    assert [(row.document, row.line, bool(row.vector.any())) for row in lines] == [
        (1, 1, True), (2, 1, False), (4, 1, True), (4, 2, False), (4, 3, True)]  # fmt: skip
    assert embed_texts(noisy(XL), TOKENIZER, []).shape == (0, 12)


def test_long_texts_are_read_in_constant_memory() -> None:
    state = {"read": 0, "done": 0, "ahead": 0}

    def parts() -> Iterator[TextPart]:
        for number in range(60):
            state["read"] += 100
            state["ahead"] = max(state["ahead"], state["read"] - state["done"])
            yield TextPart("endless", "ab中文\n" * 20, number == 0)

    def count(tokens: int) -> None:
        state["done"] += tokens

    settings = EmbedSettings(segment_length=32, batch_tokens=32)
    rows = list(embed(noisy(XL).float(), TOKENIZER, parts(), settings, progress=count))
    assert [row.tokens for row in rows] == [state["done"]] == [6000]
    assert state["ahead"] <= 8 * 32 + 300, "a pool, a segment and a part"


def test_what_cannot_be_embedded() -> None:
    model = noisy(XL)
    for layer in (3, -4):
        with pytest.raises(ConfigError, match=f"from 0, the embeddings, to 2, .* got {layer}"):
            embed_texts(model, TOKENIZER, ["a"], EmbedSettings(layer=layer))
    with pytest.raises(DataError, match="special token cls"):
        embed_texts(model, WITHOUT_EOD, ["a"], EmbedSettings(pool="cls"))
    for settings, message in (
        ({"pool": "sum"}, "mean, last, first, max or cls"),
        ({"by": "token"}, "document or line"),
        ({"by": "line", "pool": "cls"}, "one CLS"),
        ({"segment_length": 0}, "segment_length must be at least 1"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            EmbedSettings(**settings)  # type: ignore[arg-type]
    model.trunk.vocabulary.tables[0].data[TOKENIZER.encode("天")[0]] = float("nan")
    with pytest.raises(DataError, match=r"finite; got nan in document 2 \(text\)"):
        embed_texts(model, TOKENIZER, ["ab", "a天b"], EmbedSettings(batch_tokens=1))


def test_weights_that_change_between_texts_are_used() -> None:
    """The model under the settings of reading is built once, and again where the weights are others."""
    model = noisy(MODELS["transformer-xl-enwik8-base"])
    settings = EmbedSettings(layer=1, normalise=False)
    before = embed_texts(model, TOKENIZER, [TEXT], settings)
    np.testing.assert_array_equal(embed_texts(model, TOKENIZER, [TEXT], settings), before)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.1)
    in_place = embed_texts(model, TOKENIZER, [TEXT], settings)
    assert not np.array_equal(in_place, before)
    model.load_state_dict({name: value / 1.1 for name, value in model.state_dict().items()}, assign=True)
    np.testing.assert_allclose(embed_texts(model, TOKENIZER, [TEXT], settings), before, rtol=1e-5, atol=1e-7)
