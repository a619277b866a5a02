"""segue: Transformer-XL and XLNet, from raw text to a served model. See `segue --help` and docs/."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from segue.checkpoint.hub import load as load
    from segue.model import Batch as Batch
    from segue.model import LanguageModel as LanguageModel
    from segue.model import Memory as Memory
    from segue.model.named import named as named

_HOME = {
    "Batch": "segue.model",
    "LanguageModel": "segue.model",
    "Memory": "segue.model",
    "load": "segue.checkpoint.hub",
    "named": "segue.model.named",
}
__all__ = ["Batch", "LanguageModel", "Memory", "__version__", "load", "named"]


def __getattr__(name: str) -> Any:
    """Loads torch only when something that needs it is used."""
    if name not in _HOME:
        raise AttributeError(f"module 'segue' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
