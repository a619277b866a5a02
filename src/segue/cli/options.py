"""Options that several commands share, as single options and as groups.

A command is a function with a parameter for each of its own options, and one for each group of shared options, which is
a frozen dataclass. `expanded` turns it into the function that typer sees, with the options of the group in its place.
"""

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import typer

from segue.cli.completion import complete_config, complete_model
from segue.errors import ConfigError

if TYPE_CHECKING:
    from segue.api.texts import TextFiles
    from segue.data.tables import TableSettings

# ------------------------------------------------------------------------------------------------------- single options

ModelArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model folder, run folder, checkpoint of another library, or model name (see segue models).",
        autocompletion=complete_model,
    ),
]
ConfigArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="CONFIG", help="Config file, or preset name.", autocompletion=complete_config)
]
OverridesArgument: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="SECTION.KEY=VALUE", help="Settings to change in the config.")
]
ReplaceFileOption: TypeAlias = Annotated[
    bool,
    typer.Option("--replace", help="Overwrite the file if it exists. Input files are never overwritten."),
]
ReplaceFolderOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Replace the folder if segue wrote it and it holds nothing else. Input folders are never replaced.",
    ),
]
InputEncodingOption: TypeAlias = Annotated[
    str, typer.Option(help="Encoding of files without a byte order mark, e.g. gb18030.")
]
ExpansionOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--largest-expansion",
        min=1,
        metavar="FACTOR",
        help="Maximum ratio of decompressed to compressed size. Default: 100.",
    ),
]
ColumnOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=COLUMN",
        help="Column to use for a role, e.g. text=review; repeatable. Default: by column names.",
    ),
]
DocumentsOption: TypeAlias = Annotated[
    Literal["block", "line", "file", "record"] | None,
    typer.Option(
        help="Unit of a document; a block ends at a blank line. Default: block for text files, record for others."
    ),
]
FieldOption: TypeAlias = Annotated[str, typer.Option(help="Field or column that holds the text of a record.")]
SeedOption: TypeAlias = Annotated[
    int | None, typer.Option(help="Random seed; the same seed gives the same text. Default: 0.")
]


# ---------------------------------------------------------------------------------------------------- groups of options


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options for reading text files, and for the model that reads them."""

    documents: DocumentsOption = None
    field: FieldOption = "text"
    encoding: InputEncodingOption = "utf-8"
    largest_expansion: ExpansionOption = None
    input_format: Annotated[Literal["text", "jsonl", "csv", "tsv"], typer.Option(help="Format of standard input.")] = (
        "text"
    )
    segment_length: Annotated[
        int | None, typer.Option(min=1, help="Segment length in tokens. Default: as in training, else 512.")
    ] = None
    batch_tokens: Annotated[
        int,
        typer.Option(min=1, help="Number of tokens per batch, over all documents. Affects only speed and memory use."),
    ] = 4096

    def files(self, inputs: Sequence[str]) -> "TextFiles":
        """Return the inputs as texts."""
        from segue.api.texts import text_files

        for one in inputs:
            if " " in one.strip() and not set(one) & set("*?[") and not _exists(one):
                shown = one if len(one) <= 40 else f"{one[:40]}..."
                raise ConfigError(
                    f"an input must be a file, a folder or -; got {shown!r}, which does not exist. Check the path; to "
                    "read a text itself, give it on standard input, with - as the input."
                )
        return text_files(
            inputs,
            field=self.field,
            documents=self.documents,
            encoding=self.encoding,
            largest_expansion=self.largest_expansion,
            standard_input=self.input_format,
        )


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a NUL character
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Format and columns of tables."""

    column: ColumnOption = None
    format: Annotated[
        Literal["csv", "tsv", "json", "jsonl", "parquet", "conll", "squad"] | None,
        typer.Option(help="Format of the tables. Default: inferred from the file names."),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...", help="Column names of a table without a header; ... stands for the rest."
        ),
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(help="Delimiter between cells. Default: comma in csv, tab in tsv.")
    ] = None
    quoting: Annotated[
        bool | None,
        typer.Option("--quoting/--no-quoting", help="Whether cells may be quoted. Default: yes in csv, no in tsv."),
    ] = None
    encoding: Annotated[str, typer.Option(help="Encoding of tables without a byte order mark, e.g. gb18030.")] = "utf-8"
    largest_expansion: ExpansionOption = None

    def settings(self) -> "TableSettings":
        """Return the settings for reading the tables."""
        from segue.data.tables import TableSettings

        return TableSettings(
            format=self.format,
            encoding=self.encoding,
            columns=tuple(self.columns.split(",")) if self.columns else None,
            delimiter=self.delimiter,
            quoting=self.quoting,
            largest_expansion=self.largest_expansion,
        )

    def roles(self) -> dict[str, str]:
        """Return the columns by their roles."""
        return chosen_columns(self.column or [])


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTableOptions(TableOptions):
    """Options of labelled tables, some rows of which may be unreadable."""

    malformed_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Maximum share of unreadable rows, which are skipped and counted; more is an error."
        ),
    ] = 0.05

    def settings(self) -> "TableSettings":
        return dataclasses.replace(super().settings(), malformed_share=self.malformed_share)


def chosen_columns(texts: list[str]) -> dict[str, str]:
    """Return columns by role, from options ROLE=COLUMN."""
    chosen = {}
    for text in texts:
        role, equals, name = text.partition("=")
        if not equals or not role or not name:
            raise ConfigError(
                f"--column must have the form ROLE=COLUMN; got {text!r}. Write --column text=review, for example."
            )
        chosen[role] = name
    return chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Sampling options; None if not given."""

    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; values below 1 favour likely tokens. Default: 1.")
    ] = None
    top_k: Annotated[
        str | None, typer.Option(metavar="N|all", help="Sample only from the N most likely tokens. Default: 40.")
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(help="Nucleus sampling: smallest set of tokens with cumulative probability >= P. Default: off."),
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(
            help="Sample only tokens with at least this fraction of the top token's probability. Default: off."
        ),
    ] = None
    typical: Annotated[
        float | None,
        typer.Option(
            help="Locally typical sampling: smallest typical set with cumulative probability >= P. Default: off."
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Repetition penalty; values above 1 make recent tokens less likely. Default: 1."),
    ] = None
    bias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOKEN=NUMBER",
            help="Number to add to the logit of a token, or of a token id, e.g. #12=-5; -inf forbids it. Repeatable.",
        ),
    ] = None
    seed: SeedOption = None
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most likely token at each step.")] = False
    alternatives: Annotated[
        int | None, typer.Option(min=0, help="Number of most likely tokens to list beside each token.")
    ] = None


# ------------------------------------------------------------------------------------------------------------ expansion


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function as typer sees it: each parameter that is a group is replaced by the options of the group."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints[name]) and isinstance(hints[name], type):
            groups[name] = hints[name]
            shared += _options_of(hints[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    if not groups:
        return function
    parameters += shared  # after the command's own, in the help

    def verb(**given: Any) -> None:
        for name, group in groups.items():
            fields = {field.name for field in dataclasses.fields(group)}
            given[name] = group(**{key: given.pop(key) for key in fields})
        function(**given)

    verb.__name__, verb.__doc__, verb.__module__ = function.__name__, function.__doc__, function.__module__
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = {one.name: one.annotation for one in parameters}
    return verb


def _options_of(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(group)
    ]
