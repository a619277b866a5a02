"""Cost of a model: multiply-adds per token, and the peak performance of the machine."""

import time

import torch

from segue.config import ModelConfig

PEAK_SECONDS = 0.4
"""Duration of the measurement of peak performance, in seconds."""


def multiply_adds(config: ModelConfig, *, segment_length: int, predicted: int = 0) -> float:
    """Return the multiply-adds of a forward pass per token of a segment, with a full memory. `predicted` positions have
    a query stream (permutation) or are the only ones with a softmax (masked)."""
    length, inner = segment_length, config.num_heads * config.resolved_head_width
    keys = length + (config.memory.length if config.memory is not None else 0)
    distances = keys + length if config.bidirectional else keys + 1
    relative = config.positions.kind in ("xl", "shaw", "learned_relative")
    attended = inner * (2 * keys + (distances if relative else 0))
    per_query = 2 * config.width * inner + attended + 2 * config.width * config.inner_width
    streams = 1 + predicted / length if config.objective == "permutation" else 1.0
    layer = per_query * streams + 2 * config.width * inner * keys / length
    readers = 2 if config.directions == "both" else 1
    softmaxes = length if config.objective == "causal" else predicted
    return readers * config.num_layers * layer + softmaxes / length * _softmax(config) * readers


def _softmax(config: ModelConfig) -> float:
    """Return the multiply-adds per predicted token; adaptive: about those of the head and a tenth of a bin."""
    words = config.vocabulary
    if not words.cutoffs:
        return config.width * words.size
    bounds = [0, *words.cutoffs, words.size]
    widths = [(words.width or config.width) // words.shrink**i for i in range(len(bounds) - 1)]
    head = widths[0] * (words.cutoffs[0] + len(words.cutoffs))
    tails = [(b - a) * w for a, b, w in zip(bounds[1:], bounds[2:], widths[1:], strict=False)]
    return float(head + 0.1 * sum(tails) / len(tails))


def matrix_product_peak(dtype: torch.dtype = torch.float32, *, size: int = 1024) -> float:
    """Return the multiply-adds per second of a plain matrix product on this machine, the best of several."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    a, b = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))  # consumes no random numbers
    best, end = float("inf"), time.perf_counter() + PEAK_SECONDS
    while time.perf_counter() < end:
        started = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return size**3 / best
