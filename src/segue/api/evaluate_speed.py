"""Speed of evaluation: time per token with memory, against a sliding window without it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

from segue.api.errors import python_errors
from segue.api.evaluate import check_tokenizer, open_store
from segue.api.models import ModelLike, model_or_random
from segue.api.progress import Progress, progress_callback
from segue.arguments import Number, Positive
from segue.config import ModelConfig
from segue.data.store import Store
from segue.evaluation.speed import PUBLISHED, SpeedRow, measure_speed


@dataclass(frozen=True, kw_only=True)
class SpeedEvaluation:
    """Timings of a model, and how they were measured."""

    rows: Sequence[SpeedRow]
    """One row per attention length: seconds per token with memory and with a sliding window, and their ratio."""
    name: str
    """Name of the model that was timed."""
    config: ModelConfig
    dtype: str
    device: str
    """The GPU, or the number of CPU threads."""


@python_errors
def evaluate_speed(
    model: ModelLike,
    data: str | Path | Store | None = None,
    *,
    lengths: Sequence[Positive] | None = None,
    segment_length: Positive | None = None,
    repeats: Annotated[int, Number(least=1, most=10_000)] = 3,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> SpeedEvaluation:
    """Measure the time per token with memory, and that of a vanilla model that reads a whole window for each token.

    Args:
        model: A loaded model, its folder or name; or a config file or name, for random weights.
        data: A store to read. Default: random token ids.
        lengths: Attention lengths. Default: those of the paper's table.
        segment_length: Segment length in tokens, with memory. Default: the longest that the model allows.
        repeats: Number of timed runs, of which the median is taken.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        One row per attention length, with `memory_seconds`, `window_seconds`, their `ratio` and the published ratio.

    Raises:
        ConfigError: If the model cannot use memory, or a length is not possible.
        DataError: If the store is too short, or was prepared with another tokeniser.

    Examples:
        >>> found = segue.evaluate_speed("model", lengths=[16], repeats=1, progress=False)
        >>> [row.attention_length for row in found.rows]
        [16]
    """
    reader, folder, drawn = model_or_random(model)
    name = str(model) if isinstance(model, str | Path) else "the model"
    store = data if data is None or isinstance(data, Store) else open_store(Path(data), folder)
    if store is not None:
        check_tokenizer(store, folder, reader)
    with progress_callback("time", unit="tokens", progress=progress, on_event=on_event) as tell:
        rows = measure_speed(
            reader,
            attention_lengths=list(PUBLISHED) if lengths is None else list(lengths),
            segment_length=segment_length,
            windows=repeats,
            repeats=repeats,
            tokens=store,
            progress=tell,
        )
    weight = next(reader.parameters())
    threads = f"CPU, {torch.get_num_threads()} of its threads"
    return SpeedEvaluation(
        rows=rows,
        name=f"{name}, random weights" if drawn else name,
        config=reader.config,
        dtype=str(weight.dtype).removeprefix("torch."),
        device=torch.cuda.get_device_name() if weight.device.type == "cuda" else threads,
    )
