"""One token per row through a layer in C++ (`step.cpp`), and products with few rows: the hot path of a stream.

In: the weights of a layer, a cache, states. Out: the states after it. PyTorch operations give the same for any number
of tokens; for one token their overhead exceeds the time of the products, and its products with one row are slow.

Besides the letters of `segue.model`: O outputs and N inputs of a matrix, C positions of a cache's buffer.
"""

import ctypes
import math
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.model.kernels.library import NAMES, library, supports

_ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2}
_LARGEST = 127


class Weights(ctypes.Structure):
    """A matrix, with the same fields as in step.cpp."""

    _fields_ = [(name, c_void_p) for name in ("numbers", "bits", "scale", "bias")]


class LayerCall(ctypes.Structure):
    """Arguments of a call: the same fields in the same order as in step.cpp, where they are explained."""

    _fields_ = [
        *((name, c_int64) for name in ("rows", "asking", "width", "heads", "head_width", "inner", "keys", "threads")),
        *((name, c_int64) for name in ("norm_first", "activation")),
        *((name, c_double) for name in ("norm_epsilon", "scale")),
        *((name, Weights) for name in ("query", "key", "value", "out", "widen", "narrow")),
        *((f"attention_norm_{name}", c_void_p) for name in ("weight", "bias")),
        *((f"feed_forward_norm_{name}", c_void_p) for name in ("weight", "bias")),
        *((name, c_void_p) for name in ("content_bias", "position_bias", "position")),
        ("position_head", c_int64),
        *((f"cache_{name}", c_void_p) for name in ("key", "value")),
        *((f"cache_{name}", c_int64) for name in ("row", "head")),
        ("seen", c_void_p),
        ("seen_row", c_int64),
        *((name, c_void_p) for name in ("hidden", "scratch")),
    ]


# --------------------------------------------------------------------------------------------------------- products


class Product(nn.Module):
    """Linear layer x W^T + bias like nn.Linear, without gradients, fast for few rows. With `eight_bits`, W is stored as
    integers from -127 to 127 and a scale for each output, a quarter of the size; x is not quantised.

    With the compiled library, W is packed in the layout of step.cpp, [outputs / panel, inputs, panel]; otherwise it
    stays [outputs, inputs], and PyTorch multiplies.
    """

    def __init__(self, weight_ON: Tensor, bias_O: Tensor | None, *, eight_bits: bool) -> None:
        super().__init__()
        self.outputs, self.inputs = weight_ON.shape
        weight_ON = weight_ON.detach()
        scale_O = None
        if eight_bits:
            most_O = weight_ON.abs().amax(dim=1)
            scale_O = torch.where(most_O > 0, most_O / _LARGEST, torch.ones_like(most_O))
        self.panel = _panel(weight_ON)
        """Number of outputs per panel; None: W is not packed."""
        numbers_ON = weight_ON if scale_O is None else (weight_ON / scale_O[:, None]).round().to(torch.int8)
        self.numbers: Tensor
        self.scale_O: Tensor | None
        self.bias_O: Tensor | None
        self.register_buffer("numbers", numbers_ON if self.panel is None else _packed(numbers_ON, self.panel))
        self.register_buffer("scale_O", scale_O)
        self.register_buffer("bias_O", None if bias_O is None else bias_O.detach().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        if self.panel is None or not supports(x):
            return F.linear(x, self.dense(), self.bias_O)
        x = x.contiguous()
        result = x.new_empty(*x.shape[:-1], self.outputs)
        function = getattr(library(), f"segue_linear_{NAMES[x.dtype]}")
        function(
            ctypes.byref(self.pointers()),
            c_int64(self.outputs),
            c_int64(self.inputs),
            c_void_p(x.data_ptr()),
            c_int64(x.numel() // self.inputs),
            c_void_p(result.data_ptr()),
            c_int64(torch.get_num_threads()),
        )
        return result

    def dense(self) -> Tensor:
        """Return the matrix in floating point, [outputs, inputs]."""
        numbers = self.numbers
        if self.panel is not None:
            numbers = numbers.transpose(1, 2).flatten(0, 1)[: self.outputs]
        return numbers if self.scale_O is None else numbers.to(self.scale_O.dtype) * self.scale_O[:, None]

    def pointers(self) -> Weights:
        """Return the arguments of a call; the tensors must outlive it."""
        numbers = self.numbers.data_ptr()
        return Weights(
            numbers=numbers if self.scale_O is None else None,
            bits=None if self.scale_O is None else numbers,
            scale=_pointer(self.scale_O),
            bias=_pointer(self.bias_O),
        )


def _panel(weight: Tensor) -> int | None:
    if not supports(weight):
        return None
    return int(getattr(library(), f"segue_panel_{NAMES[weight.dtype]}")())


def _packed(weight_ON: Tensor, panel: int) -> Tensor:
    outputs, inputs = weight_ON.shape
    padded = weight_ON.new_zeros(-(-outputs // panel) * panel, inputs)
    padded[:outputs] = weight_ON
    return padded.view(-1, panel, inputs).transpose(1, 2).contiguous()


# ---------------------------------------------------------------------------------------------------------- layers


@dataclass(frozen=True, kw_only=True)
class LayerParts:
    """The parts of a layer, for `Steps`. Products are [query, key, value, out, widen, narrow]."""

    products: Sequence[Product]
    attention_norm: nn.LayerNorm
    feed_forward_norm: nn.LayerNorm
    norm_first: bool
    activation: str
    num_heads: int
    content_bias_HE: Tensor | None
    position_bias_HE: Tensor | None
    position_HRE: Tensor | None
    """Keys of the distances, contiguous, from the longest down to 0."""


class Steps:
    """All layers of a model, prepared to read one token per row."""

    def __init__(self, layers: Sequence[LayerParts]) -> None:
        self._layers = layers  # keeps the tensors that the calls point to
        self._calls = [_call(layer) for layer in layers]

    def run(
        self,
        hidden_ND: Tensor,
        key_LBHCE: Tensor,
        value_LBHCE: Tensor,
        *,
        seen_BK: Tensor,
        end: int,
        only: slice = slice(None),
    ) -> None:
        """Run all layers or `only` some, in place: the states, and the cache at `end`. The first B states are those of
        tokens; if there are twice as many, the others are the query stream behind each token. `seen_BK` is the mask of
        visible positions before `end`, with the token's own position last."""
        rows, keys = seen_BK.shape
        _, _, heads, capacity, head_width = key_LBHCE.shape
        size, threads = key_LBHCE.element_size(), torch.get_num_threads()
        chosen = range(len(self._layers))[only]
        calls = (LayerCall * len(chosen))()
        loaded = library()
        assert loaded is not None
        first = self._calls[0]
        scratch = hidden_ND.new_empty(
            loaded.segue_scratch_size(
                hidden_ND.shape[0], first.width, heads * head_width, first.inner, head_width, keys, threads
            )
        )
        start = (end + 1 - keys) * head_width * size
        for place, index in enumerate(chosen):
            calls[place] = self._calls[index]
            call, parts = calls[place], self._layers[index]
            call.rows, call.asking, call.keys, call.threads = rows, hidden_ND.shape[0] - rows, keys, threads
            if parts.position_HRE is not None:
                skipped = parts.position_HRE.shape[1] - keys
                call.position = parts.position_HRE.data_ptr() + skipped * head_width * size
            offset = index * key_LBHCE.stride(0) * size + start
            call.cache_key, call.cache_value = key_LBHCE.data_ptr() + offset, value_LBHCE.data_ptr() + offset
            call.cache_row, call.cache_head = heads * capacity * head_width, capacity * head_width
            call.seen, call.seen_row = seen_BK.data_ptr(), keys
            call.hidden, call.scratch = hidden_ND.data_ptr(), scratch.data_ptr()
        getattr(loaded, f"segue_steps_{NAMES[hidden_ND.dtype]}")(calls, c_int64(len(chosen)))


def applies(cache_LBHCE: Tensor) -> bool:
    """Return True if `Steps` supports a cache like this one."""
    return supports(cache_LBHCE) and not torch.is_autocast_enabled("cpu")


def _call(parts: LayerParts) -> LayerCall:
    """Return the arguments that are the same for every token."""
    query, _, _, _, widen, _ = parts.products
    all_heads, width = query.outputs, query.inputs
    head_width = all_heads // parts.num_heads
    loaded = library()
    assert loaded is not None
    assert loaded.segue_layer_size() == ctypes.sizeof(LayerCall)
    names = ("query", "key", "value", "out", "widen", "narrow")
    call = LayerCall(
        width=width,
        heads=parts.num_heads,
        head_width=head_width,
        inner=widen.outputs,
        norm_first=parts.norm_first,
        activation=_ACTIVATIONS[parts.activation],
        norm_epsilon=parts.attention_norm.eps,
        scale=1 / math.sqrt(head_width),
        attention_norm_weight=parts.attention_norm.weight.data_ptr(),
        attention_norm_bias=parts.attention_norm.bias.data_ptr(),
        feed_forward_norm_weight=parts.feed_forward_norm.weight.data_ptr(),
        feed_forward_norm_bias=parts.feed_forward_norm.bias.data_ptr(),
        content_bias=_pointer(parts.content_bias_HE),
        position_bias=_pointer(parts.position_bias_HE),
        position_head=0 if parts.position_HRE is None else parts.position_HRE.stride(0),
    )
    for name, product in zip(names, parts.products, strict=True):
        setattr(call, name, product.pointers())
    return call


def _pointer(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
