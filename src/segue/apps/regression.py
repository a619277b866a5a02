"""Logistic regression with an L2 penalty, on sparse or dense rows: the linear part of the applications' models.

In: products with the rows, and the targets. Out: weights and biases. The loss is the mean cross-entropy plus half the
squared weights, divided by C and the number of rows; the bias is not penalised.
"""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
MOST_STEPS = 60
_HISTORY = 10
"""Number of steps that L-BFGS remembers. With a hundred it takes nearly three times as long, and finds as many
intents."""


class RowProducts(Protocol):
    """Products of the rows [N, V] with a matrix, as in `segue.evaluation.baselines.Products`."""

    def forward(self, right_VT: Tensor, /) -> Tensor:
        """Return rows @ right, [N, T]."""

    def backward(self, right_NT: Tensor, /) -> Tensor:
        """Return rows.T @ right, [V, T]."""


def fit_regression(
    products: RowProducts, gold_NT: Tensor, *, width: int, inverse_penalty: float, smallest_gradient: float = 1e-7
) -> tuple[Floats, Floats]:
    """Return weights [V, T] and biases [T]; the rows of `gold_NT` are probabilities. Optimisation ends when the largest
    component of the gradient is `smallest_gradient`."""
    rows, topics = gold_NT.shape
    parameters_VT = torch.zeros(width + 1, topics)
    penalty = 1 / (inverse_penalty * rows)
    optimizer = torch.optim.LBFGS(
        [parameters_VT],
        max_iter=MOST_STEPS,
        max_eval=2 * MOST_STEPS,
        tolerance_grad=smallest_gradient,
        tolerance_change=0.0,
        history_size=_HISTORY,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        weight_VT = parameters_VT[:-1]
        scores_NT = products.forward(weight_VT) + parameters_VT[-1]
        loss = -(scores_NT.log_softmax(dim=1) * gold_NT).sum() / rows
        error_NT = (scores_NT.softmax(dim=1) - gold_NT) / rows
        parameters_VT.grad = torch.cat(
            [products.backward(error_NT) + penalty * weight_VT, error_NT.sum(dim=0, keepdim=True)]
        )
        return loss + penalty / 2 * weight_VT.square().sum()

    with torch.no_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    found = parameters_VT.numpy()
    return np.ascontiguousarray(found[:-1]), found[-1].copy()
