"""Numerical comparison with another library, on real text, with the same weights, where that library is installed.

In: a model, and the class, settings and weights of the same model in transformers. Out: a `Comparison`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig, model_config_of
from segue.errors import CheckpointError
from segue.model import Batch
from segue.text.tokenizer import Tokenizer

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and the dog does not wake up before the fox is gone.",
    "床前明月光，疑是地上霜。举头望明月，低头思故乡。",
)
MOST_PARAMETERS = 200_000_000
TOLERANCE = 1e-4
"""Maximum ratio of the largest difference to the largest logit at which two float32 computations agree."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The logits of segue and of another library for the same ids."""

    library: str
    inputs: str
    tokens: int
    logits: int
    largest: float
    """Largest absolute difference of two logits."""
    highest: float
    """Largest absolute value of a logit."""

    @property
    def agrees(self) -> bool:
        """True if both computed the same, up to float32 rounding."""
        return self.largest <= TOLERANCE * max(1.0, self.highest)

    def __str__(self) -> str:
        verdict = "the same" if self.agrees else "NOT the same"
        return (
            f"{self.library} computes {verdict}: {self.logits:,} logits of {self.tokens} tokens ({self.inputs}) differ "
            f"by {self.largest:.1e} at most, where the largest is {self.highest:.3g}"
        )


def unavailable(architecture: str, parameters: int) -> str | None:
    """Return the reason why a comparison is impossible; None if it is possible."""
    if find_spec("transformers") is None:
        return "transformers is not installed"
    if parameters > MOST_PARAMETERS:
        return f"the model has {parameters:,} parameters, more than {MOST_PARAMETERS:,}"
    if not hasattr(import_module("transformers"), architecture):
        return f"transformers {import_module('transformers').__version__} has no {architecture}"
    return None


def built(architecture: str, settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Any:
    """Build the model of transformers with these weights, without reading a file."""
    kind = getattr(import_module("transformers"), architecture)
    model = kind(kind.config_class(**{**settings, "bi_data": False}))  # bi_data needs rows in pairs
    found = model.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or [])
    left = (name for name in found.missing_keys if name not in tied and not name.endswith("inv_freq"))
    missing = [name for name in left if not name.startswith("pooler.")]  # BertModel: no hidden state needs it
    if missing or found.unexpected_keys:
        raise CheckpointError(
            f"transformers must find all weights of {architecture}; missing {missing[:4]}, unknown "
            f"{found.unexpected_keys[:4]}. Report this: the name table is wrong."
        )
    model.tie_weights()
    return model.eval()


def loaded(architecture: str, folder: Path) -> Any:
    """Load the model with transformers from a folder written by segue: safetensors, never a pickle."""
    kind = getattr(import_module("transformers"), architecture)
    logging = import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return kind.from_pretrained(folder, local_files_only=True, use_safetensors=True).float().eval()
    finally:
        if shown:
            logging.enable_progress_bar()


@torch.no_grad()
def compare(model: nn.Module, head: HeadConfig | None, theirs: Any, tokenizer: Tokenizer | None) -> Comparison:
    """Compare both models on the same two sentences, or on random ids without a tokeniser. Casts `model` to float32."""
    theirs.config.pad_token_id = None  # otherwise Transformer-XL's classifier ends a text where this id first occurs
    config = model_config_of(model)
    rows = [ids[:, : config.learned_positions] for ids in _rows(tokenizer, config.vocabulary.size)]
    model = model.float().eval()
    largest, highest, count = 0.0, 0.0, 0
    for ids in rows:
        pairs = (
            _without_head(model, theirs, ids)
            if head is None
            else zip(_ours(model, head, ids), _theirs(theirs, head, ids), strict=True)
        )
        for ours, other in pairs:
            difference = torch.where(ours == other, 0.0, (ours - other).abs())
            largest = max(largest, float(difference.nan_to_num(nan=torch.inf).max()))
            highest = max(highest, float(other.abs().max()))
            count += other.numel()
    version = import_module("transformers").__version__
    inputs = "fixed ids" if tokenizer is None else "an English and a Chinese sentence"
    return Comparison(
        library=f"transformers {version}",
        inputs=inputs,
        tokens=sum(ids.shape[1] for ids in rows),
        logits=count,
        largest=largest,
        highest=highest,
    )


def _rows(tokenizer: Tokenizer | None, size: int) -> list[Tensor]:
    if tokenizer is None:
        return [torch.from_numpy(np.random.default_rng(seed).integers(size, size=(1, 32))) for seed in (0, 1)]
    rows = [torch.from_numpy(tokenizer.encode(text))[None] for text in SENTENCES]
    return [ids for ids in rows if ids.shape[1]]


def _without_head(model: Any, theirs: Any, ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of logits, of log-probabilities (Transformer-XL), or of hidden states if there is no softmax."""
    hidden_BQD, other = model(Batch(ids_BQ=ids)).output.hidden_BQD, theirs(ids)
    if "prediction_scores" in other:
        return [(model.logits(hidden_BQD).log_softmax(-1), other.prediction_scores)]
    return [(model.logits(hidden_BQD), other.logits) if "logits" in other else (hidden_BQD, other.last_hidden_state)]


def _ours(model: Any, head: HeadConfig, ids: Tensor) -> list[Tensor]:
    batch = Batch(ids_BQ=ids)
    match head.kind:
        case "sequence_classifier" | "token_tagger":
            return [model(batch).logits]
        case "sequence_scorer":
            return [model(Batch(ids_BQ=torch.cat([ids, ids.flip(1)])), group=2).logits]
        case "simple_answerer":
            answer = model(batch)
            return [answer.start_logits_BQ, answer.end_logits_BQ]
        case "beam_answerer":
            answer = model(batch, cls_B=torch.tensor([ids.shape[1] - 1]))
            return [answer.start_log_probability_BA, answer.impossible_B]


def _theirs(model: Any, head: HeadConfig, ids: Tensor) -> list[Tensor]:
    match head.kind:
        case "sequence_classifier" | "token_tagger":
            return [model(ids).logits]
        case "sequence_scorer":
            return [model(torch.stack([ids, ids.flip(1)], dim=1)).logits]
        case "simple_answerer":
            output = model(ids)
            return [output.start_logits, output.end_logits]
        case "beam_answerer":  # transformers calls probabilities log-probabilities here
            output = model(ids, cls_index=torch.tensor([ids.shape[1] - 1]))
            return [output.start_top_log_probs.log(), output.cls_logits]
