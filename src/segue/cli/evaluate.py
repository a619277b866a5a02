"""`segue evaluate`: perplexity and bits of a model on a store. --speed, --recl and --pairs have files of their own."""

import math
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table

from segue.checkpoint.find import find, model_folder, path_of
from segue.checkpoint.folder import TOKENIZER, load
from segue.cli.plot import check_picture, figure, write_picture
from segue.cli.reporting import reporting
from segue.config import load as load_config
from segue.data.store import Store
from segue.errors import ConfigError, DataError
from segue.evaluate.perplexity import (
    Order,
    Score,
    evaluate_causal,
    evaluate_order,
    evaluate_pseudo,
    evaluate_window,
)
from segue.model import LanguageModel
from segue.text.coverage import ENOUGH, LanguageWatch
from segue.text.files import load_tokenizer

TAKES = {
    "--speed": {"--segment-length", "--lengths", "--repeats"},
    "--recl": {"--clamp-distance", "--limit", "--plot", "--replace", "--lengths", "--against", "--exact-context"},
    "--pairs": {"--segment-length", "--orders", "--seed", "--column", "--json", "--out", "--replace"},
}
"""The options that go with each; the rest are for perplexity."""
OWN = {"--lengths", "--repeats", "--against", "--exact-context", "--orders", "--seed", "--column", "--json", "--out"}
"""The options that perplexity does not have."""


def check_options(*, modes: Mapping[str, bool], given: Mapping[str, object]) -> None:
    """Refuses options that would do nothing. `modes` says which of --speed, --recl and --pairs were given; `given` is
    each of the others by its name, None where it was not."""
    chosen = [name for name, wanted in modes.items() if wanted]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} measure different things; got both. Give one.")
    mode = chosen[0] if chosen else None
    wrong = [
        name
        for name, value in given.items()
        if value not in (None, False) and (name in OWN if mode is None else name not in TAKES[mode])
    ]
    if wrong and mode is None:
        owners = [name for name, taken in TAKES.items() if set(wrong) & taken]
        raise ConfigError(f"{', '.join(wrong)} must go with {' or '.join(owners)}; got no such option. Add one.")
    if wrong:
        raise ConfigError(
            f"{mode} goes with {', '.join(sorted(TAKES[mode or '']))} only; got {', '.join(wrong)}. Leave it out."
        )


def whole_numbers(text: str, *, option: str) -> list[int]:
    """Of N,N,... as the user wrote it."""
    try:
        return [int(value) for value in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"{option} must be whole numbers with commas; got {text!r}. Write 100,200,300, say."
        ) from None


def run_evaluation(
    source: str,
    data: Path | None,
    *,
    segment_length: int | None,
    memory_length: int | None,
    attention_span: int | None,
    clamp_distance: int | None,
    window: int | None,
    stride: int,
    order: Order,
    pseudo: bool,
    lanes: int,
    limit: int | None,
    sweep: str | None,
    plot: Path | None,
    replace: bool,
) -> None:
    """Prints a table; with a sweep, a row for each memory length, and a plot."""
    console = Console(highlight=False)
    if data is None:
        raise ConfigError("perplexity needs a store; got a model alone. Give the folder of one, or --speed.")
    inputs = [data, path_of(source)]
    if plot is not None:
        check_picture(plot, replace=replace, inputs=inputs)
    folder = model_folder(find(source))
    store, model = open_store(data, folder), load(folder)
    check_tokenizer(store, folder, model)
    segment = min(segment_length or _trained_segment(folder), max(1, store.length))
    lengths = _sweep_lengths(sweep) if sweep is not None else [memory_length]
    table = Table(
        "memory", "perplexity", "bits/token", "bits/character", "bits/byte", "tokens", box=None, pad_edge=False
    )
    scores: list[tuple[int, Score]] = []
    for length in lengths:
        reader = _adjusted(model, memory_length=length, attention_span=attention_span, clamp_distance=clamp_distance)
        with reporting("evaluate" if length is None else f"evaluate, memory {length}") as report:
            if pseudo:
                mask = store.specials.get("mask")
                score = evaluate_pseudo(reader, store, segment_length=segment, mask=mask, limit=limit, progress=report)
            elif reader.config.objective == "permutation":
                score = evaluate_order(reader, store, segment_length=segment, order=order, limit=limit, progress=report)
            elif window is not None:
                score = evaluate_window(
                    reader, store, window=window, stride=stride, rows=lanes, limit=limit, progress=report
                )
            else:
                score = evaluate_causal(
                    reader, store, segment_length=segment, lanes=lanes, limit=limit, progress=report
                )
        memory = reader.config.memory.length if reader.config.memory else 0
        scores.append((memory, score))
        table.add_row(*_row(score, store, memory=memory, limit=limit))
    console.print(table)
    if plot is not None:
        write_picture(_picture(scores), plot, replace=replace, inputs=inputs)
        console.print(f"Plot: {plot}")


def _row(score: Score, store: Store, *, memory: int, limit: int | None) -> list[str]:
    share = score.targets / max(1, store.length)
    characters, size = store.manifest.characters * share, store.manifest.bytes * share
    approximate = "~" if limit is not None and limit < store.length else ""
    return [
        str(memory) if memory else "none",
        f"{score.perplexity:,.3f}",
        f"{score.bits:.4f}",
        f"{approximate}{score.nll / math.log(2) / max(1.0, characters):.4f}",
        f"{approximate}{score.nll / math.log(2) / max(1.0, size):.4f}",
        f"{score.targets:,}",
    ]


def _adjusted(
    model: LanguageModel, *, memory_length: int | None, attention_span: int | None, clamp_distance: int | None
) -> LanguageModel:
    settings: dict[str, object] = {}
    if memory_length is not None:
        settings["memory"] = {"length": memory_length}
    if attention_span is not None:
        settings["attention_span"] = attention_span
    if clamp_distance is not None:
        settings["positions"] = {"clamp_distance": clamp_distance}
    return model.adjusted(**settings) if settings else model


def open_store(data: Path, folder: Path) -> Store:
    """The store, verified. A text in its place is told how to become one, for the model in `folder`."""
    own = folder / TOKENIZER
    option = f" --tokenizer {quote(str(own))}" if own.is_dir() else ""
    if data.is_file():
        raise DataError(
            f"a model is evaluated on a store; got the file {data}. Make a store of it first: "
            f"segue prepare {quote(str(data))} --out {quote(str(data.with_suffix('.store')))}{option}."
        )
    return Store.open(data)


def check_tokenizer(store: Store, folder: Path, model: LanguageModel) -> None:
    """Refuses ids that mean something else to the model, and warns of a text in another language. A folder without a
    tokeniser has only its size to go by."""
    own, size = folder / TOKENIZER, model.config.vocabulary.size
    if store.vocabulary_size != size:
        got = f"{store.vocabulary_size} tokens for {size}"
    elif own.is_dir() and load_tokenizer(own).fingerprint() != store.manifest.tokenizer:
        got = f"another than {own}"
    else:
        if own.is_dir():
            LanguageWatch(load_tokenizer(own)).read(store.read(0, min(store.length, ENOUGH)))
        return
    remedy = f"Prepare the text with --tokenizer {own}." if own.is_dir() else "Use the store it was trained on."
    raise DataError(f"the store {store.path} must have the tokeniser of the model; got {got}. {remedy}")


def _trained_segment(folder: Path) -> int:
    data = load_config(folder / "config.toml").data
    if data is None:
        raise ConfigError("the model does not say its segment length; got none. Give --segment-length.")
    return data.segment_length


def _sweep_lengths(text: str) -> list[int | None]:
    name, _, values = text.partition("=")
    try:
        lengths: list[int | None] = [int(value) for value in values.split(",")]
    except ValueError:
        lengths = []
    if name != "memory_length" or not lengths:
        raise ConfigError(
            f"a sweep must read memory_length=N,N,...; got {text!r}. Write memory_length=64,128,256, say."
        )
    return lengths


def _picture(scores: list[tuple[int, Score]]) -> Any:
    made, axes = figure()
    axes.plot([length for length, _ in scores], [score.perplexity for _, score in scores], marker="o")
    axes.set_xlabel("memory length")
    axes.set_ylabel("perplexity")
    return made
