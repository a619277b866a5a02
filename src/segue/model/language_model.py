"""Language model: trunk and softmax for the causal, permutation and masked objectives, and batches made for it.

The choice of the loss and of the data in training is left to `train` and `data`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from segue.config import AuxiliaryConfig, ModelConfig, changed, parameter_count
from segue.errors import ConfigError, DataError, kind_of
from segue.model.batch import Batch, Output
from segue.model.build import initialise, shapes_only
from segue.model.cross_entropy import weighted_nll
from segue.model.embeddings import AdaptiveSoftmax, Bin
from segue.model.layers import activate
from segue.model.masks import order_to_rank, permutation_mask
from segue.model.memory import Memory
from segue.model.room import check_room
from segue.model.trunk import TOO_LARGE, Trunk

BACKWARD_READER = "trunk.backward_reader."
_OF_LAYER = re.compile(r"reader\.(?:layers|per_layer|biases)\.(\d+)\.")


@dataclass(frozen=True, kw_only=True)
class LanguageModelOutput:
    """The trunk's output and, if the batch has targets, the loss."""

    output: Output
    nll: Tensor | None
    """-log p of each target, in the shape of `batch.targets`, without gradient; the loss has the gradient."""
    loss: Tensor | None
    """Mean over the targets that count, with auxiliary losses added; zero if none counts."""

    @property
    def memory(self) -> Memory | None:
        return self.output.memory


class LanguageModel(nn.Module):
    """Trunk and softmax, for the causal, permutation and masked objectives."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise ConfigError(
                f"a language model is made of a ModelConfig; got {kind_of(config)}. Use "
                'segue.named("xlnet-base"), or segue.config.model_config(...).'
            )
        check_room(parameter_count(config), what="the model", remedy=TOO_LARGE)
        self.config = config
        self.trunk = Trunk(config)
        self.softmax = AdaptiveSoftmax(
            vocabulary=self.trunk.vocabulary,
            tie_weights=config.vocabulary.tie_weights,
            tie_projections=config.vocabulary.tie_projections,
            cluster_order=config.vocabulary.cluster_order,
        )
        self.transform = Transform(config) if config.vocabulary.transform else None
        self.auxiliary = AuxiliaryClassifiers(config, config.auxiliary) if config.auxiliary else None
        initialise(self.softmax, config)

    def forward(
        self, batch: Batch, memory: Memory | None = None, *, progress: float | None = None, remember: bool = True
    ) -> LanguageModelOutput:
        """Return the output and the loss. `progress`, from 0 to 1, is the completed part of the training: it adds the
        auxiliary losses of a model that has them. None leaves them out. Without `remember`, no memory is made, for the
        last segment."""
        output: Output = self.trunk(batch, memory, remember=remember)
        if batch.targets is None:
            return LanguageModelOutput(output=output, nll=None, loss=None)
        hidden = output.hidden_BQD if output.predicted_BPD is None else output.predicted_BPD
        width = self.config.width
        loss, nll = self.loss(hidden[..., :width], batch.targets, batch.target_mask)
        if self.config.directions == "both" and batch.ids_BQ.shape[1] > 1:
            real = None if batch.real_BQ is None else batch.real_BQ[:, 1:]
            loss = loss + self.loss(hidden[:, 1:, width:], batch.ids_BQ[:, :-1], real)[0]
        if self.auxiliary is not None and progress is not None:
            loss = loss + self.auxiliary(output.layers, batch.targets, batch.target_mask, progress=progress)
        return LanguageModelOutput(output=output, nll=nll, loss=loss)

    def logits(self, hidden: Tensor, *, bins: Sequence[Bin] | None = None) -> Tensor:
        """Return logits [..., V] for hidden states [..., D]; log-probabilities for an adaptive softmax. `bins`, the
        products with `softmax.bins`, save repeated calls the work of joining the tables of an adaptive softmax."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        return self.softmax.logits(hidden, self.trunk.vocabulary, bins=bins)

    def loss(self, hidden: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the mean of -log p(target) over the targets that count, and -log p(target) as in `nll`."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        weights = mean_weights(hidden, targets, mask)
        return self.softmax.weighted_nll(hidden, targets, weights, self.trunk.vocabulary)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return -log p(target) for hidden [..., D] and targets [...], without gradient."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        return self.softmax.nll(hidden, targets, self.trunk.vocabulary)

    def new_memory(self, rows: int) -> Memory | None:
        """Return the initial memory of `rows` rows; None if the model has no memory."""
        return self.trunk.new_memory(rows)

    def adjusted(self, **settings: Any) -> Self:
        """Return a model with the same weights, not copied, under other settings: for example a longer memory for
        evaluation, only the forward reader, or only the first layers."""
        with shapes_only():
            other = type(self)(changed(self.config, **settings))
        weights = {name: weight for name, weight in self.state_dict().items() if not _left_out(name, other.config)}
        wanted = other.state_dict()
        for name in wanted | weights:
            here, there = (tuple(state[name].shape) if name in state else None for state in (weights, wanted))
            if here != there:
                raise ConfigError(
                    "adjusted may change only settings that do not change the shapes of weights; got "
                    f"{_settings(settings)}, with which {name} would have the shape {there} instead of {here}. Build a "
                    "new model for that."
                )
        other.load_state_dict(weights, assign=True)
        return other.train(self.training)


def _left_out(name: str, config: ModelConfig) -> bool:
    """Return True for a weight of the backward reader or of a layer that the model of a config does not have."""
    if config.directions != "both" and name.startswith(BACKWARD_READER):
        return True
    layer = _OF_LAYER.search(name)
    return layer is not None and int(layer[1]) >= config.num_layers


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of the values that count; zero, not NaN, if none does."""
    if mask is None:
        return values.mean()
    return (values * mask).sum() / mask.sum().clamp(min=1)


def mean_weights(hidden: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
    """Return the weight of each target in a mean over those that count, so that the mean is a weighted sum."""
    counts = torch.ones_like(targets) if mask is None else mask
    counts = counts.to(torch.promote_types(hidden.dtype, torch.float32))
    return counts / counts.sum().clamp(min=1)


class Transform(nn.Module):
    """BERT's dense layer before the softmax."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        initialise(self, config)

    def forward(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, self.norm(activate(self.dense(hidden), self.activation)))


class AuxiliaryClassifiers(nn.Module):
    """Auxiliary losses of Al-Rfou et al. 2018: every layer predicts, not only the last, and further tokens, not only
    the next.

    Each layer and each target has a separate classifier. Layer l of n counts until l / 2n of the training is
    done; further targets weigh one half. The next token from the last layer is the main loss, not computed here.
    """

    def __init__(self, config: ModelConfig, settings: AuxiliaryConfig) -> None:
        super().__init__()
        self.classifiers = nn.ModuleList(
            nn.ModuleList(
                nn.Linear(config.width, config.vocabulary.size)
                for target in range(settings.targets)
                if layer < config.num_layers - 1 or target > 0
            )
            for layer in range(config.num_layers)
        )
        initialise(self, config)

    def forward(
        self, layers: tuple[Tensor, ...], targets_BQ: Tensor, target_mask: Tensor | None, *, progress: float
    ) -> Tensor:
        count = len(self.classifiers)
        total = layers[-1].new_zeros(())
        for number, classifiers in enumerate(self.classifiers, start=1):
            assert isinstance(classifiers, nn.ModuleList)
            last = number == count
            if not last and progress >= number / (2 * count):
                continue
            for ahead, classifier in enumerate(classifiers, start=1 if last else 0):
                length = targets_BQ.shape[1] - ahead
                if length < 1:
                    continue
                assert isinstance(classifier, nn.Linear)
                hidden_ND, targets = layers[number][:, :length].flatten(0, 1), targets_BQ[:, ahead:]
                weights = mean_weights(hidden_ND, targets, None if target_mask is None else target_mask[:, ahead:])
                weights_N = weights.flatten() * (1.0 if ahead == 0 else 0.5)
                loss, _ = weighted_nll(hidden_ND, classifier.weight, classifier.bias, targets.flatten(), weights_N)
                total = total + loss
        return total


# ------------------------------------------------------------------------------- batches for the language model


def order_batch(ids_BQ: Tensor, order_BQ: Tensor, *, real_BQ: Tensor | None = None) -> Batch:
    """Return a batch in which every token is predicted from those before it in a factorisation order (permutation
    objective).

    `order_BQ[b, n]` is the position predicted n-th. The sum of the nll is -log p(row) under that order.
    """
    expected = torch.arange(ids_BQ.shape[1], device=order_BQ.device).expand_as(ids_BQ)
    if order_BQ.shape != ids_BQ.shape or not torch.equal(order_BQ.sort(dim=1).values, expected):
        raise DataError(
            "an order must list every position of the row once; got "
            f"{order_BQ[0].tolist() if order_BQ.dim() == 2 else list(order_BQ.shape)} for "
            f"{ids_BQ.shape[1]} positions. Use a permutation of range(length)."
        )
    return Batch(
        ids_BQ=ids_BQ,
        targets=ids_BQ,
        target_mask=real_BQ,
        real_BQ=real_BQ,
        visible_BQQ=permutation_mask(order_to_rank(order_BQ), torch.ones_like(ids_BQ, dtype=torch.bool)),
        predicted_BP=expected.contiguous(),
    )


def conditional_batch(
    config: ModelConfig,
    source_BX: Tensor,
    target_BT: Tensor,
    *,
    source_real_BX: Tensor | None = None,
    target_real_BT: Tensor | None = None,
) -> Batch:
    """Return a batch of source, then target, through one trunk, with the loss on the target alone (translation,
    replies). X is the length of the sources, T that of the targets.

    A causal model reads both from left to right. A permutation model reads the source in both directions, and
    predicts the target left to right. Padding moves to the right end of the row; columns that are padding in every row
    are dropped.
    """
    if config.objective == "masked":
        raise DataError(
            'conditional generation needs objective "causal" or "permutation"; got "masked". Use another model.'
        )
    source_length = source_BX.shape[1]
    real = torch.cat(
        [
            torch.ones_like(source_BX, dtype=torch.bool) if source_real_BX is None else source_real_BX,
            torch.ones_like(target_BT, dtype=torch.bool) if target_real_BT is None else target_real_BT,
        ],
        dim=1,
    )
    ids = torch.cat([source_BX, target_BT], dim=1)
    is_target = torch.arange(ids.shape[1], device=ids.device).expand_as(ids) >= source_length
    front = (~real).long().argsort(dim=1, stable=True)[:, : int(real.sum(dim=1).max())]
    ids, real = ids.gather(1, front), real.gather(1, front)
    is_target = is_target.gather(1, front) & real
    real_BQ = None if bool(real.all()) else real
    if config.objective == "causal":
        return Batch(
            ids_BQ=ids[:, :-1],
            targets=ids[:, 1:],
            target_mask=is_target[:, 1:],
            real_BQ=None if real_BQ is None else real_BQ[:, :-1],
        )
    rank = torch.where(is_target, torch.arange(ids.shape[1], device=ids.device), -1)
    predicted_BP = (~is_target).long().argsort(dim=1, stable=True)[:, : target_BT.shape[1]]
    return Batch(
        ids_BQ=ids,
        targets=ids.gather(1, predicted_BP),
        target_mask=is_target.gather(1, predicted_BP),
        real_BQ=real_BQ,
        visible_BQQ=permutation_mask(rank, is_target),
        predicted_BP=predicted_BP,
    )
