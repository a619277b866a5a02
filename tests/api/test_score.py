"""Scores after a context, and whether each token was the likeliest, against their definitions."""

import math
from pathlib import Path

import pytest
import torch

import segue
from segue.errors import ConfigError, DataError
from segue.infer.documents import text_parts
from segue.infer.score import ScoreSettings, TextScore, TokenScore, score
from segue.model import Batch, LanguageModel
from tests.infer.texts import TOKENIZER
from tests.tiny import MODELS, noisy

TEXT = "ab 中文\n天地 cd"
EOD = TOKENIZER.specials["eod"]


@torch.no_grad()
def likeliest_ids(model: LanguageModel, ids: list[int]) -> list[int]:
    """Each token read alone, with what the model remembers."""
    memory, found = None, []
    for this in ids:
        result = model(Batch(ids_BQ=torch.tensor([[this]])), memory)
        memory = result.memory
        found.append(int(model.logits(result.output.hidden_BQD[0, -1, : model.config.width]).argmax()))
    return found


@pytest.mark.parametrize("segment_length", [3, 64])
@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "transformer-xl-wt103-base"])
def test_likeliest_is_the_largest_logit(name: str, segment_length: int) -> None:
    model = noisy(MODELS[name]).adjusted(memory={"reuse_length": None})
    ids = TOKENIZER.encode(TEXT).tolist()
    best = likeliest_ids(model, [EOD, *ids[:-1]])
    settings = ScoreSettings(by="token", segment_length=segment_length, likeliest=True)
    rows = list(score(model, TOKENIZER, text_parts([TEXT]), settings))
    assert [row.likeliest for row in rows] == [one == other for one, other in zip(ids, best, strict=True)]
    assert all(isinstance(row, TokenScore) for row in rows)


@pytest.mark.parametrize("name", ["xlnet-base", "bert-base", "transformer-xl-enwik8-base"])
def test_what_the_model_prefers_is_likeliest_all_over(name: str) -> None:
    """A model that always prefers one token, and a text of that token alone."""
    model = noisy(MODELS[name])
    wanted = int(TOKENIZER.encode("天")[0])
    with torch.no_grad():
        for parameter in model.softmax.parameters():
            parameter.zero_()
        for bias_name, parameter in model.named_parameters():
            if "softmax" in bias_name and parameter.dim() == 1 and len(parameter) > wanted:
                parameter[wanted] = 5.0
    settings = ScoreSettings(likeliest=True)
    rows = list(score(model, TOKENIZER, text_parts(["天天天", "天地天"]), settings))
    assert all(isinstance(row, TextScore) for row in rows)
    assert [row.likeliest for row in rows] == [True, False]


def test_likeliest_changes_no_number() -> None:
    model = noisy(MODELS["xlnet-base"])
    with_it, without = (
        list(score(model, TOKENIZER, text_parts([TEXT]), ScoreSettings(by="token", likeliest=asked)))
        for asked in (True, False)
    )
    assert [row.log_probability for row in with_it] == [row.log_probability for row in without]
    assert all(row.likeliest is None for row in without)


@pytest.mark.parametrize("model", ["model", "xlnet"])
def test_a_text_after_a_context_is_the_rest_of_the_whole(model: str, place: Path) -> None:
    contexts = ["The room was", "She was born in", ""]
    texts = [" clean.", " Paris.", "A dull film."]
    found = segue.score(model, texts, context=contexts, progress=False)
    for context, text, row in zip(contexts, texts, found, strict=True):
        tokens = segue.score(model, context + text, by="token", progress=False)
        rest = [token for token in tokens if token.end > len(context)]
        assert row.log_probability == math.fsum(token.log_probability or 0.0 for token in rest)
        assert (row.tokens, row.characters, row.text) == (len(rest), len(text), text)
        assert row.likeliest == all(token.likeliest for token in rest)
    assert found[2] == segue.score(model, ["", "", texts[2]], progress=False)[2]
    by_token = segue.score(model, texts, context=contexts, by="token", progress=False)
    whole = segue.score(model, contexts[0] + texts[0], by="token", progress=False)
    assert [token.id for token in by_token if token.document == 1] == [token.id for token in whole if token.end > 12]
    assert [(token.start, token.end) for token in by_token if token.document == 1][-1] == (6, 7)
    one = segue.score(model, texts[:1], context=contexts[0], progress=False)
    assert one == found[:1]


def test_contexts_that_are_no_contexts_are_refused(place: Path) -> None:
    with pytest.raises(DataError, match="one for each of the 2 texts; got 1"):
        segue.score("model", ["a", "b"], context=["c"], progress=False)
    with pytest.raises(ConfigError, match='by="document" or by="token"'):
        segue.score("model", ["a"], context="c", by="line", progress=False)
    with pytest.raises(ConfigError, match='order="forward"'):
        segue.score("xlnet", ["a"], context="c", order="backward", progress=False)


def test_a_loaded_model_gives_the_same(place: Path) -> None:
    model = segue.load("model")
    assert segue.score(model, TEXT, progress=False) == segue.score("model", TEXT, progress=False)
    alone = LanguageModel(model.config)
    with pytest.raises(segue.SegueError, match="must have a tokeniser"):
        segue.score(alone, TEXT, progress=False)
