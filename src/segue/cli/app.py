"""The verbs, put together. Each imports what it needs only when it runs, so that --help is quick."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

import segue
from segue.errors import ConfigError

app = typer.Typer(
    help="Transformer-XL and XLNet: models that do not stop at the segment boundary.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigArgument: TypeAlias = Annotated[str, typer.Argument(help="A config file, or the name of a preset.")]
OverridesArgument: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[SECTION.KEY=VALUE]...", help="Settings that differ from the config.")
]


def _version(wanted: bool) -> None:
    if wanted:
        print(segue.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of segue itself."""


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Show the whole config of this one.")] = None,
) -> None:
    """List the named models: what each is, its parameters, its paper."""
    from segue.cli.models import print_config, print_models

    if name is None:
        print_models()
    else:
        print_config(name)


@app.command()
def doctor(
    model: Annotated[
        str | None,
        typer.Argument(help="A named model, a config file, or a model folder. Left out: small models of both kinds."),
    ] = None,
) -> None:
    """Check the installation, and a model for the classic mistakes."""
    from segue.cli.doctor import examine

    raise typer.Exit(0 if examine(model) else 1)


@app.command()
def pretrain(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; one that exists goes on where it stopped.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard files into the run folder too.")] = False,
    wandb: Annotated[bool, typer.Option(help="Send metrics to Weights & Biases too, if it is installed.")] = False,
) -> None:
    """Pretrain a model on a store. Ctrl-C stops it and loses nothing; the same command goes on."""
    from segue.cli.pretrain import run_pretraining
    from segue.cli.settings import run_config

    if out is None:
        raise ConfigError("a run needs a folder; got no --out. Give --out RUN.")
    if not run_pretraining(run_config(config, overrides or []), out, tensorboard=tensorboard, wandb=wandb):
        raise typer.Exit(130)


@app.command()
def plan(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
) -> None:
    """Say what a run will need before it starts: parameters, memory, time."""
    from segue.cli.pretrain import print_plan
    from segue.cli.settings import run_config

    print_plan(run_config(config, overrides or []))


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="Picture to write.")] = Path("runs.png"),
) -> None:
    """Draw the losses of runs against each other."""
    from segue.cli.plot import plot_runs

    plot_runs(runs, out)


@app.command()
def evaluate(
    model: Annotated[
        Path, typer.Argument(help="A model folder: RUN/best or RUN/last. For --speed also a named model or a config.")
    ],
    data: Annotated[
        Path | None, typer.Argument(help="A store with the tokeniser of the model. --speed does without.")
    ] = None,
    segment_length: Annotated[int | None, typer.Option(min=1, help="Tokens read at a time; as in training.")] = None,
    memory_length: Annotated[int | None, typer.Option(min=1, help="Another memory than in training.")] = None,
    attention_span: Annotated[
        int | None, typer.Option(min=1, help="Keys that each token sees, itself included.")
    ] = None,
    clamp_distance: Annotated[int | None, typer.Option(min=1, help="Longer distances count as this one.")] = None,
    window: Annotated[int | None, typer.Option(min=1, help="Slide a window of this length, without memory.")] = None,
    stride: Annotated[int, typer.Option(min=1, help="By so many tokens.")] = 1,
    order: Annotated[
        Literal["forward", "backward", "random"], typer.Option(help="Permutation models: the order.")
    ] = "forward",
    pseudo: Annotated[bool, typer.Option(help="Pseudo-likelihood, for masked and permutation models.")] = False,
    lanes: Annotated[int, typer.Option(min=1, help="Read side by side; changes the speed, not the result.")] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many tokens.")] = None,
    sweep: Annotated[str | None, typer.Option(help="memory_length=N,N,...: a row for each.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the sweep, or of --recl.")] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Time a token takes with memory, against a vanilla model's sliding window.")
    ] = False,
    recl: Annotated[
        bool, typer.Option("--recl", help="Relative effective context length of the model and those --against it.")
    ] = False,
    lengths: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Attention or context lengths of --speed and --recl.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="--speed: what is timed, so often. Left out: 3.")] = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="MODEL", help="--recl: another model of the group; may be repeated.")
    ] = None,
    exact_context: Annotated[
        bool, typer.Option("--exact-context", help="--recl: no memory; a window from nothing for every token. Slow.")
    ] = False,
) -> None:
    """Perplexity and bits of a model on a text; or its speed, or how much context it uses."""
    from segue.cli.evaluate import check_options, run_evaluation

    given = {
        "--segment-length": segment_length,
        "--memory-length": memory_length,
        "--attention-span": attention_span,
        "--clamp-distance": clamp_distance,
        "--window": window,
        "--order": order if order != "forward" else None,
        "--pseudo": pseudo,
        "--limit": limit,
        "--sweep": sweep,
        "--plot": plot,
        "--lengths": lengths,
        "--repeats": repeats,
        "--against": against or None,
        "--exact-context": exact_context,
    }
    check_options(speed=speed, recl=recl, given=given)
    if speed:
        from segue.cli.evaluate_speed import run_speed

        run_speed(str(model), data, lengths=lengths, segment_length=segment_length, repeats=repeats or 3)
        return
    if recl:
        from segue.cli.recl import run_recl

        run_recl(
            [model, *(against or [])],
            data,
            lengths=lengths,
            limit=limit,
            exact=exact_context,
            clamp_distance=clamp_distance,
            plot=plot,
        )
        return
    run_evaluation(
        model,
        data,
        segment_length=segment_length,
        memory_length=memory_length,
        attention_span=attention_span,
        clamp_distance=clamp_distance,
        window=window,
        stride=stride,
        order=order,
        pseudo=pseudo,
        lanes=lanes,
        limit=limit,
        sweep=sweep,
        plot=plot,
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where everything goes.")] = Path("demo"),
    steps: Annotated[int, typer.Option(min=1, help="Updates of each of the four models.")] = 500,
) -> None:
    """The main job in a few minutes: real text, prepared, pretrained, evaluated, compared."""
    from segue.cli.demo import run_demo

    run_demo(out, steps=steps)


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
EncodingOption: TypeAlias = Annotated[str, typer.Option(help="Of tables without a byte order mark: gb18030, say.")]


@app.command()
def finetune(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name on the hub.")],
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
    new_weights: Annotated[
        bool, typer.Option("--new-weights", help="Only the shape and tokeniser of MODEL: what pretraining brings.")
    ] = False,
) -> None:
    """Fine-tune a model for a task, measured. Settings: read.KEY, train.KEY and task.KEY.

    Documents longer than a segment are read to their end with memory. Ctrl-C keeps the best model so far.
    """
    from segue.cli.finetune import print_tasks, run_finetuning
    from segue.data.tables import TableSettings

    if task is None:
        print_tasks()
        return
    if train is None or out is None:
        raise ConfigError("fine-tuning needs examples and a folder; got none. Give --train FILE and --out RUN.")
    names = tuple(columns.split(",")) if columns else None
    tables = TableSettings(format=format, encoding=encoding, columns=names, delimiter=delimiter, quoting=quoting)
    finished = run_finetuning(
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
    )
    if not finished:
        raise typer.Exit(130)


@app.command()
def tune(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name on the hub.")],
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
    tables = TableSettings(format=format, encoding=encoding, columns=names, delimiter=delimiter, quoting=quoting)
    finished = run_search(
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
    if not finished:
        raise typer.Exit(130)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A fine-tuned model: RUN, or RUN/best.")],
    source: Annotated[str, typer.Argument(metavar="FILE|-", help="A table, or - for standard input.")],
    out: Annotated[Path | None, typer.Option(help="Table to write. Left out: standard output.")] = None,
    to: Annotated[
        Literal["csv", "tsv", "jsonl"] | None, typer.Option(help="Its format. Left out: by its name, else jsonl.")
    ] = None,
    column: ColumnOption = None,
    format: TableFormatOption = None,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = None,
    quoting: QuotingOption = None,
    encoding: EncodingOption = "utf-8",
    batch_size: Annotated[int, typer.Option(min=1, help="Rows read together; changes the speed only.")] = 32,
) -> None:
    """Answer every row of a table with a fine-tuned model."""
    from segue.cli.predict import run_prediction
    from segue.data.tables import TableSettings

    names = tuple(columns.split(",")) if columns else None
    tables = TableSettings(format=format, encoding=encoding, columns=names, delimiter=delimiter, quoting=quoting)
    run_prediction(model, source, out=out, to=to, columns=column or [], tables=tables, batch_size=batch_size)


TextsArgument: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE|-...",
        help="Text, files and folders as for segue prepare (txt, jsonl, csv, tsv, parquet), or - for standard input.",
    ),
]
DocumentsOption: TypeAlias = Annotated[
    Literal["block", "line", "file", "record"] | None,
    typer.Option(help="A document; a block goes up to a blank line. Left out: block for text, record for others."),
]
FieldOption: TypeAlias = Annotated[str, typer.Option(help="Field or column that holds the text of a record.")]
InputEncodingOption: TypeAlias = Annotated[
    str, typer.Option(help="Of files without a byte order mark, for example gb18030.")
]
InputFormatOption: TypeAlias = Annotated[
    Literal["text", "jsonl", "csv", "tsv"], typer.Option(help="Format of standard input.")
]
SegmentLengthOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Positions read at a time. Left out: as in training, else 512.")
]
BatchTokensOption: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Tokens read at a time, over documents side by side: speed and memory only.")
]


@app.command()
def score(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name on the hub.")],
    texts: TextsArgument,
    by: Annotated[Literal["token", "line", "document"], typer.Option(help="What a row is.")] = "document",
    order: Annotated[
        Literal["forward", "backward", "random"],
        typer.Option(help="Of a permutation model: in what order the tokens of a segment are predicted."),
    ] = "forward",
    seed: Annotated[int, typer.Option(min=0, help="Of random orders.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Table to write. Left out: standard output.")] = None,
    to: Annotated[
        Literal["jsonl", "csv", "tsv", "parquet"] | None,
        typer.Option(help="Its format. Left out: by its name, else jsonl."),
    ] = None,
    documents: DocumentsOption = None,
    field: FieldOption = "text",
    encoding: InputEncodingOption = "utf-8",
    input_format: InputFormatOption = "text",
    segment_length: SegmentLengthOption = None,
    batch_tokens: BatchTokensOption = 4096,
) -> None:
    """Log-probabilities of texts of any length, for each token, line or document.

    A causal model predicts each token from those before it, a permutation model in an order of each segment, a masked
    model from all others of its window (pseudo-likelihood). Natural logarithms.
    """
    from segue.cli.score import run_scoring
    from segue.data.readers import ReadSettings

    run_scoring(
        model,
        texts,
        out=out,
        to=to,
        by=by,
        order=order,
        seed=seed,
        segment_length=segment_length,
        batch_tokens=batch_tokens,
        read=ReadSettings(document=documents, field=field, encoding=encoding),
        standard_input=input_format,
    )


@app.command()
def embed(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name on the hub.")],
    texts: TextsArgument,
    out: Annotated[Path, typer.Option(help="File to write: .npy, .parquet or .jsonl.")],
    by: Annotated[
        Literal["document", "line"],
        typer.Option(help="What a vector is of. A line is read after what comes before it in its document."),
    ] = "document",
    layer: Annotated[
        int | None, typer.Option(help="0: the embeddings; negative: from the end. Left out: the last.")
    ] = None,
    pool: Annotated[Literal["mean", "last", "first", "max", "cls"], typer.Option(help="Over the tokens.")] = "mean",
    normalise: Annotated[bool, typer.Option("--normalise/--no-normalise", help="Vectors of length 1.")] = True,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Long texts with the model's memory, or in windows.")
    ] = True,
    text: Annotated[bool, typer.Option("--text", help="A column with the text, in parquet and jsonl.")] = False,
    documents: DocumentsOption = None,
    field: FieldOption = "text",
    encoding: InputEncodingOption = "utf-8",
    input_format: InputFormatOption = "text",
    segment_length: SegmentLengthOption = None,
    batch_tokens: BatchTokensOption = 4096,
) -> None:
    """A vector for each document or line, of any length."""
    from segue.cli.embed import run_embedding
    from segue.data.readers import ReadSettings
    from segue.infer.embed import EmbedSettings

    run_embedding(
        model,
        texts,
        out=out,
        settings=EmbedSettings(
            by=by, layer=layer, pool=pool, normalise=normalise, memory=memory, batch_tokens=batch_tokens
        ),
        segment_length=segment_length,
        text=text,
        read=ReadSettings(document=documents, field=field, encoding=encoding),
        standard_input=input_format,
    )


@app.command()
def tour() -> None:
    """A guided tour of the models: memory, permutations, exactness. All numbers are computed as you watch."""
    from segue.cli.tour import run

    run()


@app.command()
def prepare(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Files, folders or quoted globs: txt, jsonl, csv, tsv, parquet, each also as .gz, .xz, .zst or .bz2.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the new store; a validation store goes to OUT-valid.")],
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder of a tokeniser, or a store that has one. Left out: one is trained.")
    ] = None,
    kind: Annotated[
        Literal["unigram", "bpe", "words", "characters", "bytes"], typer.Option(help="Tokeniser to train.")
    ] = "unigram",
    vocabulary_size: Annotated[
        int | None,
        typer.Option(help="Its size. Left out: 8000 for unigram and bpe, no limit for words and characters."),
    ] = None,
    sample_characters: Annotated[
        int, typer.Option(help="Unigram and bpe are trained on a random part of the text, at most this long.")
    ] = 2**22,
    documents: Annotated[
        Literal["block", "line", "file", "record"] | None,
        typer.Option(help="A document; a block goes up to a blank line. Left out: block for text, record for others."),
    ] = None,
    field: Annotated[str, typer.Option(help="Field or column that holds the text of a record.")] = "text",
    encoding: Annotated[str, typer.Option(help="Of files without a byte order mark, for example gb18030.")] = "utf-8",
    workers: Annotated[int | None, typer.Option(help="Processes that encode. Left out: all cores.")] = None,
    validation_share: Annotated[
        float | None, typer.Option(help="Share of the documents for OUT-valid, for example 0.01.")
    ] = None,
    malformed_share: Annotated[
        float, typer.Option(help="A file with a larger share of unreadable records is an error.")
    ] = 0.05,
    largest_expansion: Annotated[
        int | None, typer.Option(help="Refuse compressed files that grow more than this many times.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the sample for training and the validation documents.")] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a store that is there.")] = False,
) -> None:
    """Turn text into a store: ids on disk that training reads.

    Malformed bytes become U+FFFD, NULs are dropped, lines above 65,536 characters are cut, empty and duplicate files
    are left out; all of it is counted and reported. A run that is stopped leaves nothing that looks like a store.
    """
    from segue.cli.prepare import run
    from segue.data.prepare import PrepareSettings
    from segue.data.readers import ReadSettings

    read = ReadSettings(
        document=documents,
        field=field,
        encoding=encoding,
        malformed_share=malformed_share,
        largest_expansion=largest_expansion,
    )
    settings = PrepareSettings(
        read=read,
        tokenizer=tokenizer,
        kind=kind,
        vocabulary_size=vocabulary_size,
        sample_characters=sample_characters,
        validation_share=validation_share,
        seed=seed,
    )
    run(inputs, out=out, settings=settings, workers=workers, replace=replace)


@app.command()
def sample(
    name: Annotated[str | None, typer.Argument(help="Which one. Left out: they are described.")] = None,
    out: Annotated[Path | None, typer.Option(help="Text file, or table of labelled texts, to write.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file that is there.")] = False,
) -> None:
    """Write a real corpus for a first try, English or Chinese, plain or labelled."""
    from segue.cli.sample import default_name, print_samples, write

    if name is None:
        print_samples()
    else:
        write(name, default_name(name) if out is None else out, replace=replace)


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="A model folder, or a run folder.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Where it goes on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="If it is new there: only for you.")] = False,
    revision: Annotated[str | None, typer.Option(help="A branch; made if it is not there. Left out: main.")] = None,
    message: Annotated[str | None, typer.Option(help="Of the commit.")] = None,
    license: Annotated[str | None, typer.Option(help="For the card: apache-2.0, mit, other, say.")] = None,
    language: Annotated[list[str] | None, typer.Option(help="For the card, any number: en, zh, say.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files and their sizes.")] = False,
) -> None:
    """Upload a model folder with its card to the hub, checked first."""
    from segue.cli.push import run_push

    run_push(
        folder,
        name,
        private=private,
        revision=revision,
        message=message,
        licence=license,
        languages=language or [],
        dry_run=dry_run,
    )


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="A model folder; a folder of transformers; a TensorFlow checkpoint, by its prefix or folder; a "
            "model.pt or state dict of the original PyTorch code; a safetensors file."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    to: Annotated[
        Literal["segue", "hf", "tf", "original"],
        typer.Option(
            help="segue: a model folder. hf: for transformers. tf: for the TensorFlow code. original: a state dict of "
            "the original PyTorch code, as safetensors. Pickles are read, without running them, and never written."
        ),
    ] = "segue",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What the source does not say: model.memory.length=1600, head.summary=mean.",
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="Which of several fine-tuned heads of a TensorFlow checkpoint; none: no head.")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="A spiece.model, vocab.txt or pickled vocabulary that is not beside the source.")
    ] = None,
    compare: Annotated[
        bool, typer.Option(help="Compare logits on real text with transformers, where it is installed.")
    ] = True,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the folder of an earlier conversion.")] = False,
) -> None:
    """Convert a checkpoint of Transformer-XL or XLNet from or to another library, with a report of every tensor."""
    from segue.cli.convert import run_conversion

    run_conversion(
        source,
        out,
        to=to,
        settings=settings or [],
        head=head,
        vocabulary=vocabulary,
        compare=compare,
        replace=replace,
    )


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A file or a folder.")],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
) -> None:
    """Say what a file or folder is, of anyone's format, without loading weights."""
    from segue.cli.inspect import run_inspection

    run_inspection(path, tensors=tensors)
