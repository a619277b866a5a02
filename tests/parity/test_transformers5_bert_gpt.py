"""BERT and GPT of transformers 5: encoders, losses, padding."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.model import Batch, LanguageModel, Trunk
from segue.model.heads import SequenceClassifier, Summary
from tests.parity.transformers5 import LEFT_PADDED, LENGTH, ROWS, VOCABULARY, ids, labels, sequence_labels
from tests.parity.weights import (
    bert_config,
    bert_state,
    close,
    close_gradients,
    filled,
    gpt_config,
    gpt_state,
    noisy,
    only,
)

transformers = pytest.importorskip("transformers", minversion="5")
pytestmark = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])

RIGHT_PADDED = LEFT_PADDED.flip(1)

# --------------------------------------------------------------------------------------------------- BERT


def bert(kind: str, dtype: torch.dtype, **choices: object) -> nn.Module:
    settings = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=16,
        pad_token_id=None,  # or token 0 gets no gradient
        **choices,
    )
    return noisy(getattr(transformers, kind)(settings), dtype)


def bert_inputs(dtype: torch.dtype) -> tuple[Batch, dict[str, Tensor]]:
    """Padding on the right, where it does not move BERT's positions."""
    batch = Batch(ids_BQ=ids(), segments_BQ=ids(below=2, seed=2), real_BQ=RIGHT_PADDED)
    return batch, {
        "input_ids": batch.ids_BQ,
        "attention_mask": RIGHT_PADDED.to(dtype),
        "token_type_ids": batch.segments_BQ,
    }


@torch.no_grad()
def test_bert_encoder(dtype: torch.dtype) -> None:
    """Every layer at every real token, and the pooled first one. At padding the two differ: segue lets a padded
    position see itself."""
    other = bert("BertModel", dtype)
    config, state = bert_config(other.config), bert_state(other.state_dict())
    trunk = filled(Trunk(config), only(state, "trunk."))
    pooler = filled(Summary(config, kind="first", projected=True), only(state, "summary."))
    assert len(state) == len(trunk.state_dict()) + len(pooler.state_dict())
    batch, inputs = bert_inputs(dtype)
    want, got = other(**inputs, output_hidden_states=True), trunk(batch)
    close(got.hidden_BQD[RIGHT_PADDED], want.last_hidden_state[RIGHT_PADDED], dtype)
    for layer_BQD, want_BQD in zip(got.layers, want.hidden_states, strict=True):
        close(layer_BQD[RIGHT_PADDED], want_BQD[RIGHT_PADDED], dtype)
    close(pooler(got.hidden_BQD, batch.real_BQ), want.pooler_output, dtype)
    plain, want_plain = trunk(Batch(ids_BQ=batch.ids_BQ)), other(batch.ids_BQ)  # no types: all of type 0
    close(plain.hidden_BQD, want_plain.last_hidden_state, dtype)


def test_bert_masked_language_model(dtype: torch.dtype) -> None:
    """Logits, loss and the gradient of every parameter; predicting everywhere, or only where it counts."""
    other = bert("BertForMaskedLM", dtype)
    model = filled(LanguageModel(bert_config(other.config)), bert_state(other.state_dict()))
    batch, inputs = bert_inputs(dtype)
    predicted_BP = torch.tensor([[0, 3], [1, 2], [4, 0], [2, 3]])
    counts_BQ = torch.zeros(ROWS, LENGTH, dtype=torch.bool).scatter(1, predicted_BP, True)
    targets_BQ = ids(seed=3)
    want = other(**inputs, labels=labels(targets_BQ, counts_BQ))
    want.loss.backward()
    everywhere = model(replace(batch, targets=targets_BQ, target_mask=counts_BQ))
    close(model.logits(everywhere.output.hidden_BQD)[RIGHT_PADDED], want.logits[RIGHT_PADDED], dtype)
    close(everywhere.loss, want.loss, dtype)
    targets_BP = targets_BQ.gather(1, predicted_BP)
    there = model(replace(batch, targets=targets_BP, predicted_BP=predicted_BP))
    close(there.loss, want.loss, dtype)
    there.loss.backward()
    close_gradients(model, other, bert_state, dtype)


@torch.no_grad()
def test_bert_sequence_classification(dtype: torch.dtype) -> None:
    other = bert("BertForSequenceClassification", dtype, num_labels=4)
    head = SequenceClassifier(bert_config(other.config), num_labels=4, summary="first")
    filled(head, bert_state(other.state_dict()))
    batch, inputs = bert_inputs(dtype)
    gold = sequence_labels("single", dtype)
    want, got = other(**inputs, labels=gold), head(batch, labels=gold)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)


# ---------------------------------------------------------------------------------------------------- GPT


def gpt_models(kind: str, dtype: torch.dtype) -> tuple[nn.Module, LanguageModel]:
    """`kind`: OpenAIGPT or GPT2."""
    settings = {"vocab_size": VOCABULARY, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 3}
    if kind == "GPT2":  # GPT's inner width is always four times its width
        settings |= {"n_inner": 40, "bos_token_id": 0, "eos_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(**settings)
    other = noisy(getattr(transformers, f"{kind}LMHeadModel")(config), dtype)
    state = gpt_state(other.state_dict()) | {"softmax.token_biases.0": torch.zeros(VOCABULARY, dtype=dtype)}
    return other, filled(LanguageModel(gpt_config(config)), state)


@pytest.mark.parametrize("kind", ["OpenAIGPT", "GPT2"])
def test_gpt(kind: str, dtype: torch.dtype) -> None:
    """Logits, loss and the gradient of every parameter. transformers shifts the labels itself, and takes its loss
    in float32 whatever the dtype: in float64 the loss is taken here, from its logits."""
    other, model = gpt_models(kind, dtype)
    ids_BQ = ids()
    want = other(ids_BQ, labels=ids_BQ)
    own = F.cross_entropy(want.logits[:, :-1].transpose(1, 2), ids_BQ[:, 1:])
    want_loss = want.loss if dtype == torch.float32 else own
    want_loss.backward()
    inside_BQ = (torch.arange(LENGTH) < LENGTH - 1).expand(ROWS, -1)
    got = model(Batch(ids_BQ=ids_BQ, targets=ids_BQ.roll(-1, dims=1), target_mask=inside_BQ))
    close(model.logits(got.output.hidden_BQD), want.logits, dtype)
    close(got.loss, want_loss, dtype)
    got.loss.backward()
    close_gradients(model, other, gpt_state, dtype)


@pytest.mark.parametrize("kind", ["OpenAIGPT", "GPT2"])
@pytest.mark.parametrize("real_BQ", [LEFT_PADDED, RIGHT_PADDED], ids=["left", "right"])
@torch.no_grad()
def test_gpt_padding(kind: str, real_BQ: Tensor, dtype: torch.dtype) -> None:
    """At real tokens. segue counts positions from the first of them; transformers does if it is told to."""
    other, model = gpt_models(kind, dtype)
    position_BQ = (real_BQ.long().cumsum(dim=1) - 1).clamp(min=0)
    want = other(ids(), attention_mask=real_BQ.to(dtype), position_ids=position_BQ)
    got = model(Batch(ids_BQ=ids(), real_BQ=real_BQ))
    close(model.logits(got.output.hidden_BQD)[real_BQ], want.logits[real_BQ], dtype)
