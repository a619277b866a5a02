"""`segue embed`: a vector for each document or line of files of any length, as npy, Parquet or JSON lines."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
import typer
from rich.console import Console

from segue.api.embed import embed_each
from segue.api.models import path_of, text_model
from segue.cli.console import duration
from segue.cli.options import ModelArgument, ReplaceFileOption, TextOptions
from segue.cli.output_tables import Kind, RowFormat, RowWriter, metered, row_writer, summarise, written
from segue.errors import ConfigError
from segue.files import check_file
from segue.infer.embed import Embedding, EmbedSettings

_HEADER = 128  # bytes; room for any number of rows
_FORMATS: dict[str, RowFormat | None] = {".npy": None, ".jsonl": "jsonl", ".parquet": "parquet"}


def run_embedding(
    model: str,
    inputs: Sequence[str],
    *,
    out: Path,
    replace: bool,
    settings: EmbedSettings,
    reading: TextOptions,
    text: bool,
) -> None:
    """Write the vectors and print a summary. The segment length and the batch are those of `reading`."""
    if out.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{out} must end in .npy, .parquet or .jsonl; got {out.suffix!r}. Rename it.")
    to = _FORMATS[out.suffix.lower()]
    files = reading.files(inputs)
    read_from = [path_of(model), *(file.path for file in files.files)]
    check_file(out, replace=replace, inputs=read_from)
    console = Console(stderr=True, highlight=False, emoji=False)
    loaded = text_model(model)
    width = loaded.model.config.hidden_width
    columns: dict[str, Kind] = {"document": "int64", "source": "text", "line": "int64", "tokens": "int64"}
    columns |= {"text": "text", "vector": "vector"}
    for name in ([] if settings.by == "line" else ["line"]) + ([] if text else ["text"]):
        del columns[name]
    with metered(console, files) as meter, written(out, replace=replace, inputs=read_from) as file:
        writer: RowWriter = _Npy(file, width) if to is None else row_writer(file, to, columns, width=width)
        stream = embed_each(
            loaded,
            files,
            by=settings.by,
            layer=settings.layer,
            pool=settings.pool,
            normalise=settings.normalise,
            memory=settings.memory,
            segment_length=reading.segment_length,
            batch_tokens=reading.batch_tokens,
            progress=False,
            on_event=meter.show,
        )
        for one in stream:
            writer.write({name: getattr(one, name) for name in columns} | {"vector": _vector(one, to)})
        writer.close()
        seconds = meter.seconds
    totals = stream.totals
    summarise(
        console,
        files,
        {
            "documents": f"{totals.documents:,}",
            "tokens": f"{totals.tokens:,}",
            "vectors": f"{totals.vectors:,} of width {width:,}",
            "texts without tokens": f"{totals.empty:,}" + (", as zeros" if totals.empty else ""),
            "time": f"{duration(seconds)}, {totals.tokens / max(seconds, 1e-9):,.0f} tokens/s",
        },
    )
    console.print(f"{out}", soft_wrap=True, markup=False)


def _vector(one: Embedding, to: RowFormat | None) -> Any:
    return one.vector if to is None else one.vector.tolist()


class _Npy:
    """A float32 array whose number of rows is known only at the end, when the header is written again."""

    def __init__(self, file: BinaryIO, width: int) -> None:
        self.file, self.width, self.rows = file, width, 0
        self._header()

    def write(self, row: Mapping[str, Any]) -> None:
        self.file.write(np.asarray(row["vector"], dtype="<f4").tobytes())
        self.rows += 1

    def close(self) -> None:
        self.file.seek(0)
        self._header()
        self.file.flush()

    def _header(self) -> None:
        shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({self.rows}, {self.width}), }}"
        text = shape.ljust(_HEADER - 11).encode("ascii") + b"\n"
        self.file.write(np.lib.format.magic(1, 0) + struct.pack("<H", len(text)) + text)


def embed(
    model: ModelArgument,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="FILE|-", help="Text files and folders, as for segue prepare; - reads standard input."),
    ],
    reading: TextOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .npy, .parquet or .jsonl.")],
    replace: ReplaceFileOption = False,
    by: Annotated[
        Literal["document", "line"],
        typer.Option(help="Unit to embed. A line is read in the context of the lines before it in its document."),
    ] = "document",
    layer: Annotated[
        int | None,
        typer.Option(
            help="Layer to take hidden states from: 0 is the embeddings, negative numbers count from the end. "
            "Default: the last."
        ),
    ] = None,
    pool: Annotated[Literal["mean", "last", "first", "max", "cls"], typer.Option(help="Pooling over tokens.")] = "mean",
    normalise: Annotated[
        bool,
        typer.Option("--normalise/--no-normalise", help="Whether to normalise vectors to unit length. Default: yes."),
    ] = True,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory/--no-memory",
            help="Whether to read long texts with memory, or else in separate windows. Default: yes.",
        ),
    ] = True,
    text: Annotated[bool, typer.Option("--text", help="Include the text as a column, in parquet and jsonl.")] = False,
) -> None:
    """Compute a vector for each document or line.

    \b
    Example:
      segue embed model reviews.txt --out vectors.npy
      segue embed model - --out out.npy < text.txt
    """
    settings = EmbedSettings(by=by, layer=layer, pool=pool, normalise=normalise, memory=memory)
    run_embedding(
        model,
        texts,
        out=out,
        replace=replace,
        settings=settings,
        reading=reading,
        text=text,
    )
