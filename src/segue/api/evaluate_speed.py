"""What memory saves in evaluation: the time of a token with memory, against a sliding window without."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from segue.api.errors import python_errors
from segue.api.evaluate import check_tokenizer, open_store
from segue.api.models import ModelLike, model_or_random
from segue.api.progress import Progress, told
from segue.config import ModelConfig
from segue.data.store import Store
from segue.evaluation.speed import PUBLISHED, SpeedRow, measure_speed


@dataclass(frozen=True, kw_only=True)
class SpeedEvaluation:
    """Times of a model, and how they were measured."""

    rows: Sequence[SpeedRow]
    """A row for each attention length: seconds for each token, both ways, and their ratio."""
    name: str
    """What was measured."""
    config: ModelConfig
    dtype: str
    device: str
    """The GPU, or how many threads of the CPU."""


@python_errors
def evaluate_speed(
    model: ModelLike,
    data: str | Path | Store | None = None,
    *,
    lengths: Sequence[int] | None = None,
    segment_length: int | None = None,
    repeats: int = 3,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> SpeedEvaluation:
    """Measure the time of a token with memory, and of a vanilla model that reads a whole window for each token.

    Args:
        model: A model that is loaded, or its folder or name; or a config, by its file or name, for random weights.
        data: A store to read. Default: ids are drawn.
        lengths: Attention lengths. Default: those of the paper's table.
        segment_length: Tokens that are read at a time with memory. Default: as many as the model can.
        repeats: Number of timed runs; the median counts.
        progress: Whether progress is shown on standard error.
        on_event: Called with a `Progress` as the work goes on.

    Returns:
        A row for each attention length, with `memory_seconds`, `window_seconds`, their `ratio` and the published one.

    Raises:
        ConfigError: If the model cannot read with memory, or a length is impossible.
        DataError: If the store is too short or has another tokeniser.

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
    with told("time", unit="tokens", progress=progress, on_event=on_event) as tell:
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
