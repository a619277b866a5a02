"""`segue evaluate MODEL --speed`: what memory saves in evaluation, beside what the paper says."""

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from segue.api.evaluate import check_tokenizer, open_store
from segue.checkpoint.find import find, is_here, model_folder
from segue.checkpoint.folder import load
from segue.cli.console import say
from segue.cli.evaluate import whole_numbers
from segue.cli.reporting import reporting
from segue.config import load as load_config
from segue.data.store import Store
from segue.evaluation.speed import PUBLISHED, SpeedRow, measure_speed
from segue.model import LanguageModel
from segue.model.named import named


def run_speed(model: str, data: Path | None, *, lengths: str | None, segment_length: int | None, repeats: int) -> None:
    """Prints how it was measured, then a row for each attention length."""
    console = Console(highlight=False)
    attention_lengths = list(PUBLISHED) if lengths is None else whole_numbers(lengths, option="--lengths")
    name, reader, folder = _model(model)
    store = None if data is None else open_store(data, folder)
    if store is not None:
        check_tokenizer(store, folder, reader)
    with reporting("time") as report:
        rows = measure_speed(
            reader,
            attention_lengths=attention_lengths,
            segment_length=segment_length,
            windows=repeats,
            repeats=repeats,
            tokens=store,
            progress=report,
        )
    for line in _setup(name, reader, store, segment_length=rows[0].segment_length, repeats=repeats):
        say(console, line, hang=2)
    console.print(_table(rows))


def _model(model: str) -> tuple[str, LanguageModel, Path]:
    """What to call it, the model, and its folder; a config has none, and its path stands for it."""
    torch.manual_seed(0)
    if Path(model).suffix != ".toml" and is_here(model):
        folder = model_folder(find(model))
        return model, load(folder), folder
    config = load_config(model).model if Path(model).suffix == ".toml" else named(model)
    return f"{model}, random weights", LanguageModel(config), Path(model)


def _setup(name: str, model: LanguageModel, store: Store | None, *, segment_length: int, repeats: int) -> list[str]:
    config, weight = model.config, next(model.parameters())
    threads = torch.get_num_threads()
    device = torch.cuda.get_device_name() if weight.device.type == "cuda" else f"CPU, {threads} of its threads"
    text = "drawn ids" if store is None else str(store.path)
    return [
        f"{name}: {config.num_layers} layers, width {config.width}, {config.num_heads} heads of "
        f"{config.resolved_head_width}, inner width {config.inner_width}, {config.vocabulary.size} tokens; "
        f"{str(weight.dtype).removeprefix('torch.')}, {device}; one row of {text}.",
        f"With memory: segments of {segment_length} tokens, keys and values kept; every token sees the attention "
        f"length. From {repeats} runs of that length, their median.",
        "Sliding window: a vanilla model of the same shape, without memory, positions learned in every layer; for each "
        f"token a whole window is read, and its last position predicts. From {repeats} windows, their median.",
    ]


def _table(rows: list[SpeedRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in (
        "attention length",
        "memory ms/token",
        "window ms/token",
        "times slower",
        "published",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row.attention_length:,}",
            f"{row.memory_seconds * 1000:.3f}",
            f"{row.window_seconds * 1000:,.1f}",
            f"{row.ratio:,.0f}",
            "" if row.published is None else f"{row.published:,}",
        )
    return table
