"""The verbs that learn from labelled tables: finetune, tune, predict."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from segue.cli.outputs import ReplaceFileOption
from segue.errors import ConfigError

OverridesArgument: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[SECTION.KEY=VALUE]...", help="Settings that differ from the config.")
]
ColumnOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="ROLE=COLUMN", help="A column whose name does not say what it is: text=review."),
]
TableFormatOption: TypeAlias = Annotated[
    Literal["csv", "tsv", "json", "jsonl", "parquet", "conll", "squad"] | None,
    typer.Option(help="Of the tables. Left out: by their names."),
]
ColumnsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME,NAME,...", help="Names of all columns of a table without a header; ... for the rest."),
]
DelimiterOption: TypeAlias = Annotated[str | None, typer.Option(help="Between the cells of csv and tsv, if unusual.")]
QuotingOption: TypeAlias = Annotated[
    bool | None,
    typer.Option("--quoting/--no-quoting", help="Whether quotes enclose cells. Left out: in csv, not in tsv."),
]
MalformedShareOption: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Share of rows that may be unreadable; they are left out and counted. More is an error.",
    ),
]
EncodingOption: TypeAlias = Annotated[str, typer.Option(help="Of tables without a byte order mark: gb18030, say.")]

ExpansionOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--largest-expansion", min=1, help="Refuse compressed files that grow more than this many times. Default: 100."
    ),
]


def finetune(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name (segue models).")],
    overrides: OverridesArgument = None,
    task: Annotated[str | None, typer.Option(help="What to learn. Left out: the tasks are listed.")] = None,
    train: Annotated[
        str | None, typer.Option(help="Labelled examples: csv, tsv, jsonl, parquet, CoNLL or SQuAD, or datasets:NAME.")
    ] = None,
    valid: Annotated[str | None, typer.Option(help="Others, to choose the best model. Left out: a tenth.")] = None,
    test: Annotated[str | None, typer.Option(help="Others, measured at the end.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder, a new one.")] = None,
    column: ColumnOption = None,
    format: TableFormatOption = None,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = None,
    quoting: QuotingOption = None,
    encoding: EncodingOption = "utf-8",
    malformed_share: MalformedShareOption = 0.05,
    largest_expansion: ExpansionOption = None,
    new_weights: Annotated[
        bool, typer.Option("--new-weights", help="Only the shape and tokeniser of MODEL: what pretraining brings.")
    ] = False,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines/--no-baselines",
            help="Measure the most frequent class and a tuned TF-IDF beside a classifier, in seconds.",
        ),
    ] = True,
    adapt: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="EPOCHS",
            help="First pretrain on the training texts, so many times over them; 10, say. Default: no.",
        ),
    ] = None,
    wide: Annotated[
        bool | None,
        typer.Option(
            "--wide/--no-wide",
            help="Let that TF-IDF answer with the classifier, and save both. Default: if it alone is better than the "
            "model alone on the validation examples.",
        ),
    ] = None,
) -> None:
    """Fine-tune a model for a task, measured. Settings: read.KEY, train.KEY and task.KEY.

    Documents longer than a segment are read to their end with memory. Ctrl-C keeps the best model so far.
    """
    from segue.cli.finetune import print_tasks, run_finetuning
    from segue.data.tables import TableSettings

    if task is None and (train is not None or out is not None):
        raise ConfigError(
            "fine-tuning needs a task; got no --task. Give one of classify, pair, regress, tag, answer, "
            "choose, rank or generate; `segue finetune MODEL` alone describes them."
        )
    if task is None:
        print_tasks()
        return
    if train is None or out is None:
        raise ConfigError("fine-tuning needs examples and a folder; got none. Give --train FILE and --out RUN.")
    names = tuple(columns.split(",")) if columns else None
    tables = TableSettings(
        format=format,
        encoding=encoding,
        columns=names,
        delimiter=delimiter,
        quoting=quoting,
        malformed_share=malformed_share,
        largest_expansion=largest_expansion,
    )
    stopped_by = run_finetuning(
        model,
        out,
        task=task,
        train=train,
        valid=valid,
        test=test,
        columns=column or [],
        tables=tables,
        overrides=overrides or [],
        new_weights=new_weights,
        baselines=baselines,
        adapt=adapt,
        wide=wide,
    )
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)


def tune(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name (segue models).")],
    overrides: OverridesArgument = None,
    task: Annotated[str, typer.Option(help="What to learn; segue finetune MODEL lists the tasks.")] = "classify",
    train: Annotated[str | None, typer.Option(help="Labelled examples, as for segue finetune.")] = None,
    valid: Annotated[str | None, typer.Option(help="Others, by which trials are judged. Left out: a tenth.")] = None,
    out: Annotated[Path | None, typer.Option(help="The study folder; one that exists goes on.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Of the whole study, earlier ones among them.")] = 20,
    hours: Annotated[float | None, typer.Option(help="Begin no trial later than this.")] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=LOW..HIGH[:log]|A,B,C",
            help="A setting to search, in place of the usual ones; may be repeated.",
        ),
    ] = None,
    column: ColumnOption = None,
    format: TableFormatOption = None,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = None,
    quoting: QuotingOption = None,
    encoding: EncodingOption = "utf-8",
    malformed_share: MalformedShareOption = 0.05,
    largest_expansion: ExpansionOption = None,
    new_weights: Annotated[
        bool, typer.Option("--new-weights", help="Only the shape and tokeniser of MODEL, not its weights.")
    ] = False,
) -> None:
    """Search for settings with many fine-tuning runs. Ctrl-C loses nothing; the same command goes on."""
    from segue.cli.tune import run_search
    from segue.data.tables import TableSettings

    if train is None or out is None:
        raise ConfigError("a search needs examples and a folder; got none. Give --train FILE and --out STUDY.")
    names = tuple(columns.split(",")) if columns else None
    tables = TableSettings(
        format=format,
        encoding=encoding,
        columns=names,
        delimiter=delimiter,
        quoting=quoting,
        malformed_share=malformed_share,
        largest_expansion=largest_expansion,
    )
    stopped_by = run_search(
        model,
        out,
        task=task,
        train=train,
        valid=valid,
        columns=column or [],
        tables=tables,
        fixed=overrides or [],
        searched=search or [],
        trials=trials,
        hours=hours,
        new_weights=new_weights,
    )
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)


def predict(
    model: Annotated[
        str,
        typer.Argument(help="A fine-tuned model: a run folder, a model folder, or a name (segue models)."),
    ],
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE|-|TEXT...", help="A table, - for standard input, or texts: see below."),
    ],
    out: Annotated[Path | None, typer.Option(help="Table to write. Left out: standard output.")] = None,
    replace: ReplaceFileOption = False,
    to: Annotated[
        Literal["csv", "tsv", "jsonl"] | None, typer.Option(help="Its format. Left out: by its name, else jsonl.")
    ] = None,
    column: ColumnOption = None,
    format: TableFormatOption = None,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = None,
    quoting: QuotingOption = None,
    encoding: EncodingOption = "utf-8",
    largest_expansion: ExpansionOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows read together; changes the speed only.")] = 32,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas/--no-escape-formulas",
            help="In csv and tsv, put a ' before text that a spreadsheet would run as a formula (= + - @).",
        ),
    ] = True,
) -> None:
    """Answer every row of a table, or texts, with a fine-tuned model.

    One argument that is a path, or ends as a table does (.csv, .jsonl, ...), is a table. All others are texts; a task
    that reads two texts takes them in turn.

    All rows come back, in order. A row that cannot be read or answered has no answer and says why in the column
    `problem`; such rows are counted on standard error, and the exit status is 0.
    """
    from segue.cli.predict import run_prediction
    from segue.data.tables import TableSettings

    names = tuple(columns.split(",")) if columns else None
    tables = TableSettings(
        format=format,
        encoding=encoding,
        columns=names,
        delimiter=delimiter,
        quoting=quoting,
        largest_expansion=largest_expansion,
    )
    run_prediction(
        model,
        sources,
        out=out,
        replace_existing=replace,
        to=to,
        columns=column or [],
        tables=tables,
        batch_size=batch_size,
        escape_formulas=escape_formulas,
    )
