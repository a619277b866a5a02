"""Every head of XLNet, compared with transformers 5.

Where transformers computes something else on purpose or by mistake, the test says so and compares what is left.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.checkpoint.families import xlnet_transformers
from segue.model import Batch
from segue.model.answers import BeamAnswerer, SimpleAnswerer, Spans
from segue.model.heads import SequenceClassifier, SequenceScorer, TokenTagger
from tests.parity.transformers5 import LEFT_PADDED, LENGTH, ROWS, ids, labels, sequence_labels, xlnet
from tests.parity.weights import (
    close,
    filled,
    xlnet_config,
    xlnet_state,
)

pytestmark = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def head_state(other: nn.Module) -> dict[str, Tensor]:
    """The weights of a model with whatever head transformers' config and tensors say it has."""
    settings = other.config.to_dict() | {"architectures": [type(other).__name__]}
    return xlnet_state(other.state_dict(), xlnet_transformers.head(settings, other.state_dict()))


def head_inputs(dtype: torch.dtype, *, padded: bool = True) -> tuple[Batch, dict[str, Tensor | None]]:
    batch = Batch(ids_BQ=ids(), segments_BQ=ids(below=4, seed=2), real_BQ=LEFT_PADDED if padded else None)
    mask = LEFT_PADDED.to(dtype) if padded else None
    return batch, {"input_ids": batch.ids_BQ, "attention_mask": mask, "token_type_ids": batch.segments_BQ}


@pytest.mark.parametrize("task", ["single", "multiple", "regression"])
@torch.no_grad()
def test_xlnet_sequence_classification(task: str, dtype: torch.dtype) -> None:
    """summary_type "last" is the last position, so padding must be on the left, as in the original; segue's is
    the last real token wherever the padding is."""
    num_labels = 1 if task == "regression" else 4
    other = xlnet("XLNetForSequenceClassification", dtype, num_labels=num_labels)
    assert other.config.summary_type == "last"
    head = SequenceClassifier(xlnet_config(other.config), num_labels=num_labels, task=task)
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    gold = sequence_labels(task, dtype)
    want, got = other(**inputs, labels=gold), head(batch, labels=gold)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("kind", ["first", "last", "mean"])
@torch.no_grad()
def test_xlnet_summaries(kind: str, projected: bool, dtype: torch.dtype) -> None:
    """Without padding, of which transformers' first and mean know nothing. Without a projection, transformers
    still applies its activation, unless that is left out too; it has no "attention"."""
    choices = {} if projected else {"summary_use_proj": False, "summary_activation": ""}
    other = xlnet("XLNetForSequenceClassification", dtype, num_labels=4, summary_type=kind, **choices)
    config = xlnet_config(other.config)
    head = SequenceClassifier(config, num_labels=4, summary=kind, projected=projected)
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype, padded=False)
    close(head(batch).logits, other(**inputs).logits, dtype)


@torch.no_grad()
def test_xlnet_token_classification(dtype: torch.dtype) -> None:
    other = xlnet("XLNetForTokenClassification", dtype, num_labels=5)
    head = TokenTagger(xlnet_config(other.config), num_tags=5)
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    tags_BQ, tagged_BQ = ids(below=5, seed=3), LEFT_PADDED & (ids(below=3, seed=4) > 0)
    want = other(**inputs, labels=labels(tags_BQ, tagged_BQ))
    got = head(batch, tags_BQ=tags_BQ, tagged_BQ=tagged_BQ)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)
    # Left out, segue counts the real tokens; transformers would count padding, unless its labels are -100.
    close(head(batch, tags_BQ=tags_BQ).loss, other(**inputs, labels=labels(tags_BQ, LEFT_PADDED)).loss, dtype)


@torch.no_grad()
def test_xlnet_multiple_choice(dtype: torch.dtype) -> None:
    other = xlnet("XLNetForMultipleChoice", dtype)
    head = SequenceScorer(xlnet_config(other.config), loss="choice")
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    questions = {name: value.view(2, 2, LENGTH) for name, value in inputs.items()}
    gold = torch.tensor([1, 0])
    want, got = other(**questions, labels=gold), head(batch, group=2, labels=gold)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)


@torch.no_grad()
def test_xlnet_simple_answers(dtype: torch.dtype) -> None:
    other = xlnet("XLNetForQuestionAnsweringSimple", dtype)
    head = SimpleAnswerer(xlnet_config(other.config))
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    spans = Spans(start_B=torch.tensor([1, 4, 6, 5]), end_B=torch.tensor([3, 4, 8, 9]))
    want = other(**inputs, start_positions=spans.start_B, end_positions=spans.end_B)
    got = head(batch, spans=spans)
    close(got.start_logits_BQ, want.start_logits, dtype)
    close(got.end_logits_BQ, want.end_logits, dtype)
    close(got.loss, want.loss, dtype)


def beam_models(dtype: torch.dtype) -> tuple[nn.Module, BeamAnswerer]:
    other = xlnet("XLNetForQuestionAnswering", dtype, start_n_top=3, end_n_top=2)
    head = BeamAnswerer(xlnet_config(other.config), num_starts=3, num_ends=2)
    return other, filled(head, head_state(other))


def beam_masks(dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """CLS is the last token; answers may not lie in the padding or in the question, the last tokens but CLS."""
    cls_B = torch.full((ROWS,), LENGTH - 1)
    allowed_BQ = LEFT_PADDED & ((torch.arange(LENGTH) < LENGTH - 2) | (torch.arange(LENGTH) == LENGTH - 1))
    ours = {"cls_B": cls_B, "allowed_BQ": allowed_BQ}
    return ours, {"cls_index": cls_B, "p_mask": (~allowed_BQ).to(dtype)}


@torch.no_grad()
def test_xlnet_answer_beams(dtype: torch.dtype) -> None:
    """What transformers calls log-probabilities are probabilities, and it flattens the ends of all starts with
    the starts inside: [ends, starts]."""
    other, head = beam_models(dtype)
    batch, inputs = head_inputs(dtype)
    ours, masks = beam_masks(dtype)
    want, got = other(**inputs, **masks), head(batch, **ours)
    assert torch.equal(got.start_index_BA, want.start_top_index)
    assert torch.equal(got.end_index_BAZ, want.end_top_index.view(ROWS, 2, 3).transpose(1, 2))
    close(got.start_log_probability_BA, want.start_top_log_probs.log(), dtype)
    close(got.end_log_probability_BAZ, want.end_top_log_probs.view(ROWS, 2, 3).transpose(1, 2).log(), dtype)
    close(got.impossible_B, want.cls_logits, dtype)


@torch.no_grad()
def test_xlnet_answer_losses(dtype: torch.dtype) -> None:
    """Start and end are the same. For answerability, transformers looks at the gold start in training and at the
    expected one in inference; the original and segue look at the expected one in both."""
    other, head = beam_models(dtype)
    batch, inputs = head_inputs(dtype)
    ours, masks = beam_masks(dtype)
    last = LENGTH - 1
    start_B, end_B = torch.tensor([1, 4, last, 5]), torch.tensor([3, 4, last, 7])
    impossible_B = start_B == last
    gold = {"start_positions": start_B, "end_positions": end_B}
    spans_only = other(**inputs, **masks, **gold).loss
    close(head(batch, **ours, spans=Spans(start_B=start_B, end_B=end_B)).loss, spans_only, dtype)

    inferred = other(**inputs, **masks).cls_logits
    impossible = F.binary_cross_entropy_with_logits(inferred, impossible_B.to(dtype))
    got = head(batch, **ours, spans=Spans(start_B=start_B, end_B=end_B, impossible_B=impossible_B))
    close(got.impossible_B, inferred, dtype)
    close(got.loss, spans_only + 0.5 * impossible, dtype)
    trained = other(**inputs, **masks, **gold, is_impossible=impossible_B.to(dtype)).loss
    assert not torch.isclose(got.loss, trained, atol=1e-3)  # if equal one day, compare the losses directly
