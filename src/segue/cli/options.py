"""Options that several verbs have: written once, as values that a verb takes whole.

A verb is a function with a parameter for each of its own options, and one for each group of shared options, which is a
frozen dataclass. `expanded` turns it into the function that typer sees, with the options of the group in its place.
"""

import dataclasses
import inspect
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
        help="Model folder, run folder, checkpoint of another library, or name (see segue models).",
        autocompletion=complete_model,
    ),
]
ConfigArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="CONFIG", help="Config file, or name of a preset.", autocompletion=complete_config)
]
OverridesArgument: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="SECTION.KEY=VALUE", help="Settings that differ from the config.")
]
ReplaceFileOption: TypeAlias = Annotated[
    bool,
    typer.Option("--replace", help="Replace the file if it exists. A file that the command reads is never replaced."),
]
ReplaceFolderOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Replace the folder if segue wrote it and nothing else is in it. A folder that is read is never replaced.",
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
        help="Largest factor by which a compressed file may grow. Default: 100.",
    ),
]
ColumnOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=COLUMN",
        help="Column of a role, where its name does not say it, e.g. text=review; repeatable.",
    ),
]
DocumentsOption: TypeAlias = Annotated[
    Literal["block", "line", "file", "record"] | None,
    typer.Option(
        help="What a document is; a block ends at a blank line. Default: block for text files, record for others."
    ),
]
FieldOption: TypeAlias = Annotated[str, typer.Option(help="Field or column that holds the text of a record.")]
SeedOption: TypeAlias = Annotated[
    int | None, typer.Option(help="Random seed; the same seed gives the same text. Default: 0.")
]


# ---------------------------------------------------------------------------------------------------- groups of options


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How files of text are read, and how the model reads them."""

    documents: DocumentsOption = None
    field: FieldOption = "text"
    encoding: InputEncodingOption = "utf-8"
    largest_expansion: ExpansionOption = None
    input_format: Annotated[Literal["text", "jsonl", "csv", "tsv"], typer.Option(help="Format of standard input.")] = (
        "text"
    )
    segment_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens per segment. Default: as in training, else 512.")
    ] = None
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens per batch, over all documents. Changes speed and memory only.")
    ] = 4096

    def files(self, inputs: Sequence[str]) -> "TextFiles":
        """The inputs as texts."""
        from segue.api.texts import text_files

        return text_files(
            inputs,
            field=self.field,
            documents=self.documents,
            encoding=self.encoding,
            largest_expansion=self.largest_expansion,
            standard_input=self.input_format,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How tables are written, and what their columns mean."""

    column: ColumnOption = None
    format: Annotated[
        Literal["csv", "tsv", "json", "jsonl", "parquet", "conll", "squad"] | None,
        typer.Option(help="Format of the tables. Default: by their file names."),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...", help="Names of all columns of a table without a header; ... stands for the rest."
        ),
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(help="Character between cells. Default: comma in csv, tab in tsv.")
    ] = None
    quoting: Annotated[
        bool | None,
        typer.Option("--quoting/--no-quoting", help="Whether quotes enclose cells. Default: yes in csv, no in tsv."),
    ] = None
    encoding: Annotated[str, typer.Option(help="Encoding of tables without a byte order mark, e.g. gb18030.")] = "utf-8"
    largest_expansion: ExpansionOption = None

    def settings(self) -> "TableSettings":
        """How the tables are read."""
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
        """Columns by their roles."""
        return chosen_columns(self.column or [])


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTableOptions(TableOptions):
    """The same for labelled tables, of which some rows may be unreadable."""

    malformed_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Largest share of unreadable rows, which are left out and counted. More is an error."
        ),
    ] = 0.05

    def settings(self) -> "TableSettings":
        return dataclasses.replace(super().settings(), malformed_share=self.malformed_share)


def chosen_columns(texts: list[str]) -> dict[str, str]:
    """Options ROLE=COLUMN as a table of them."""
    chosen = {}
    for text in texts:
        role, equals, name = text.partition("=")
        if not equals or not role or not name:
            raise ConfigError(f"--column must read ROLE=COLUMN; got {text!r}. Write --column text=review, say.")
        chosen[role] = name
    return chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are chosen, as it was asked for; None is what was left out."""

    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature: below 1, likely tokens become likelier. Default: 1.")
    ] = None
    top_k: Annotated[
        str | None, typer.Option(metavar="N|all", help="Sample from the N likeliest tokens only. Default: 40.")
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(help="Nucleus sampling: smallest set of tokens with cumulative probability >= P. Default: off."),
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(help="Only tokens with at least this share of the likeliest one's probability. Default: off."),
    ] = None
    typical: Annotated[
        float | None,
        typer.Option(
            help="Locally typical sampling: smallest typical set with cumulative probability >= P. Default: off."
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1, tokens of the recent text become less likely. Default: 1.")
    ] = None
    bias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOKEN=NUMBER",
            help="Number added to the logit of a token, or of an id: #12=-5; -inf forbids it. Repeatable.",
        ),
    ] = None
    seed: SeedOption = None
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest token each time.")] = False
    alternatives: Annotated[
        int | None, typer.Option(min=0, help="Number of likeliest tokens to list beside each token.")
    ] = None


# ------------------------------------------------------------------------------------------------------------ expansion


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """The function as typer sees it: each parameter that is a group appears as the options of the group."""
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
    parameters += shared  # after the verb's own, in the help

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
