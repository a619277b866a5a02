"""segue: Transformer-XL and XLNet, from raw text to a served model. See `segue --help` and docs/."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from segue.checkpoint.find import load as load
    from segue.infer.sampling import SamplingSettings as SamplingSettings
    from segue.infer.session import Session as Session
    from segue.infer.session import open_session as open
    from segue.model import Batch as Batch
    from segue.model import LanguageModel as LanguageModel
    from segue.model import Memory as Memory
    from segue.model.named import named as named

_HOME = {
    "Batch": ("segue.model", "Batch"),
    "LanguageModel": ("segue.model", "LanguageModel"),
    "Memory": ("segue.model", "Memory"),
    "SamplingSettings": ("segue.infer.sampling", "SamplingSettings"),
    "Session": ("segue.infer.session", "Session"),
    "load": ("segue.checkpoint.find", "load"),
    "named": ("segue.model.named", "named"),
    "open": ("segue.infer.session", "open_session"),
}
__all__ = ["Batch", "LanguageModel", "Memory", "SamplingSettings", "Session", "__version__", "load", "named", "open"]


def __getattr__(name: str) -> Any:
    """Loads torch only when something that needs it is used."""
    if name not in _HOME:
        raise AttributeError(f"module 'segue' has no attribute {name!r}")
    module, own_name = _HOME[name]
    return getattr(import_module(module), own_name)
