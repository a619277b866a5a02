"""Ids and memory go in; hidden states and the next memory come out.

Tensor names end in their shape, one letter an axis, batch first:

    B rows            Q positions of this segment     M positions of the memory    K = M + Q keys
    H heads           E width of a head               D width of the model         F inner width
    V vocabulary      P predicted positions           L layers                     R distances
    S signs of the distance: 1, or B where rows may be read backwards

`score_BHQK` is the score of each key for each query, for each row and head. Masks are boolean, and there is one
polarity: True = may attend. Distances are query position minus key position: positive = the key is to the left.

Read in this order: `values` (what travels), `masks`, `memory`, `positions`, `kernels`, `attention`, `layers`,
`cross_entropy`, `embeddings`, `build`, `trunk`, `language_model`, `heads`, `answers`, `named`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segue.model.language_model import LanguageModel as LanguageModel
    from segue.model.memory import Memory as Memory
    from segue.model.trunk import Trunk as Trunk
    from segue.model.values import Batch as Batch
    from segue.model.values import Output as Output

_HOME = {
    "Batch": "values",
    "LanguageModel": "language_model",
    "Memory": "memory",
    "Output": "values",
    "Trunk": "trunk",
}
__all__ = ["Batch", "LanguageModel", "Memory", "Output", "Trunk"]


def __getattr__(name: str) -> Any:
    """Loads torch only when something that needs it is used: `named` does without."""
    if name not in _HOME:
        raise AttributeError(f"module 'segue.model' has no attribute {name!r}")
    return getattr(import_module(f"segue.model.{_HOME[name]}"), name)
