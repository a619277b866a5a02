"""The compiled library, from all `*.cpp` of this folder: found, checked and loaded, or absent. Also its simplest
functions, dropout and the cross-entropy of logits in bfloat16.

The installation compiles it if there is a compiler (hatch_build.py). Without it PyTorch operations give the same
results more slowly; `segue doctor` reports whether it is used.
"""

import ctypes
import hashlib
import platform
import warnings
from ctypes import c_char_p, c_double, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCES = Path(__file__).parent
LIBRARY = Path(__file__).with_name("libnative.so")
NAMES = {torch.float32: "float32", torch.float64: "float64"}
"""Suffixes of function names, by dtype."""


@cache
def library() -> ctypes.CDLL | None:
    """Return the loaded library; None if there is none to use."""
    if not LIBRARY.exists():
        return None
    if platform.machine().lower() in {"x86_64", "amd64"} and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return None  # built with AVX2, which this processor does not have
    loaded = ctypes.CDLL(str(LIBRARY))
    loaded.segue_source.restype = c_char_p
    if loaded.segue_source().decode() != source_hash():
        warnings.warn(
            f"{LIBRARY.name} was built from another version of its sources, so it is not used and attention is "
            "slower. Install segue again to build it.",
            stacklevel=2,
        )
        return None
    for size in ("problem", "layer", "scratch"):
        getattr(loaded, f"segue_{size}_size").restype = c_int64
    loaded.segue_scratch_size.argtypes = [c_int64] * 7
    for name in NAMES.values():
        drop = getattr(loaded, f"segue_drop_{name}")
        drop.argtypes = [c_void_p, c_void_p, c_int64, c_int64, c_uint64, c_uint64, c_double, c_int64]
        drop.restype = None
    loaded.segue_nll_bfloat16.argtypes = [c_void_p] * 6 + [c_int64] * 3
    return loaded


def source_hash() -> str:
    """Return the hash of the sources, which the build also passes to the compiler (hatch_build.py)."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def available() -> bool:
    """Return True if the library was built, from these sources, for a processor like this one."""
    return library() is not None


def supports(x: Tensor) -> bool:
    """Return True if a tensor can be passed to the library: a dense tensor in CPU memory."""
    plain = type(x) in {Tensor, torch.nn.Parameter} and x.device.type == "cpu" and x.dtype in NAMES
    return plain and not torch.compiler.is_compiling() and available()


def drop(x: Tensor, *, seed: int, threshold: int, scale: float) -> Tensor:
    """Return x, scaled where `dropout.keep_mask` keeps it, zero elsewhere."""
    x = x.contiguous()
    result = torch.empty_like(x)
    columns = x.shape[-1] if x.dim() else 1
    rows = x.numel() // max(columns, 1)
    function = getattr(library(), f"segue_drop_{NAMES[x.dtype]}")
    function(x.data_ptr(), result.data_ptr(), rows, columns, seed, threshold, scale, torch.get_num_threads())
    return result


def nll_and_gradient(
    logits_CV: Tensor, bias_V: Tensor, targets_C: Tensor, weights_C: Tensor, *, d_bias_V: Tensor | None
) -> Tensor:
    """Return -log p(target) of each row, from dense logits in bfloat16 without their bias. With `d_bias_V`, the logits
    are overwritten by the gradient of the weighted sum, weight * (p - onehot(target)), and the gradient of the bias is
    added to `d_bias_V`."""
    nll_C = torch.empty_like(weights_C)
    loaded = library()
    assert loaded is not None
    rows, size = logits_CV.shape
    tensors = (logits_CV, bias_V, targets_C, weights_C, nll_C)
    assert all(x.is_contiguous() for x in tensors)
    failed = loaded.segue_nll_bfloat16(
        *(x.data_ptr() for x in tensors),
        None if d_bias_V is None else d_bias_V.data_ptr(),
        rows,
        size,
        torch.get_num_threads(),
    )
    if failed:
        raise MemoryError("no memory left for a row of logits")
    return nll_C
