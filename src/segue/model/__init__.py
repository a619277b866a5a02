"""The models: ids and memory go in; hidden states and the next memory come out.

Tensor names end in their shape, one letter per axis, batch first:

    B rows                          Q positions of a segment       M positions of the memory     K = M + Q keys
    H heads                         E width of a head              D width of the model          F inner width
    V vocabulary                    L layers                       R distances                   P predicted positions
    J = Q + P, both streams         T tokens of a whole text       N items of a flat list        C classes of a head
    S signs of the distance: 1, or B where rows may be read backwards
    X any other length, said where it occurs

In `segments_BND` and `there_BN`, N are the segments of a document. Digits are fixed sizes: `segment_2HE`, `mask_B1QK`.
Files that need further letters, or C for something else, name them in their docstrings.

`score_BHQK` is the score of each key for each query, for each row and head. Masks are boolean, and there is one
polarity: True = may attend. Distances are query position minus key position: positive = the key is to the left.

Read in this order: `batch`, `memory`, `positions`, `masks`, `kernels`, `attention`, `layers`, `build`, `stack`,
`cross_entropy`, `embeddings`, `trunk`, `language_model`, `segmenting`, `reading`, `heads`, `answers`, `cache`,
`streaming`, `named`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segue.model.batch import Batch as Batch
    from segue.model.batch import Output as Output
    from segue.model.language_model import LanguageModel as LanguageModel
    from segue.model.memory import Memory as Memory
    from segue.model.trunk import Trunk as Trunk

_HOME = {
    "Batch": "batch",
    "LanguageModel": "language_model",
    "Memory": "memory",
    "Output": "batch",
    "Trunk": "trunk",
}
__all__ = ["Batch", "LanguageModel", "Memory", "Output", "Trunk"]


def __getattr__(name: str) -> Any:
    """Import a submodule on first use, so that `named` can be used without loading torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'segue.model' has no attribute {name!r}")
    return getattr(import_module(f"segue.model.{_HOME[name]}"), name)
