"""The verbs, put together. Each imports what it needs only when it runs, so that --help is quick."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

import segue
from segue.cli.outputs import ReplaceFileOption, ReplaceFolderOption
from segue.cli.table_verbs import ColumnOption, ExpansionOption, OverridesArgument, finetune, predict, tune
from segue.cli.text_verbs import embed, generate, infill, score
from segue.errors import ConfigError

app = typer.Typer(
    help="Transformer-XL and XLNet: models that do not stop at the segment boundary.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigArgument: TypeAlias = Annotated[str, typer.Argument(help="A config file, or the name of a preset.")]


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
    name: Annotated[
        str | None, typer.Argument(help="Show this one: the card of a model, or the whole of a config.")
    ] = None,
) -> None:
    """List what has a name: models with weights, and configs without."""
    from segue.cli.models import print_models, print_one

    if name is None:
        print_models()
    else:
        print_one(name)


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
    out: Annotated[Path | None, typer.Option(help="The run folder; a run that is in it is resumed.")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Start with the weights of this model, a folder, a run or a name, and with its [model] settings. "
            "Default: new weights.",
        ),
    ] = None,
    new_weights: Annotated[bool, typer.Option("--new-weights", hidden=True)] = False,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard files into the run folder too.")] = False,
    wandb: Annotated[bool, typer.Option(help="Send metrics to Weights & Biases too, if it is installed.")] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare the stores with their checksums first.")
    ] = False,
) -> None:
    """Pretrain a model on a store. Ctrl-C or SIGTERM saves its state and stops it; the same command resumes it."""
    from segue.api.configs import check_has_weights, run_config
    from segue.cli.pretrain import run_pretraining
    from segue.train.stages import find_origin

    if out is None:
        raise ConfigError("a run needs a folder; got no --out. Give --out RUN.")
    if new_weights:
        raise ConfigError(
            "pretraining starts with new weights unless --from names a model; got --new-weights, which is for "
            "fine-tuning. Leave it out."
        )
    if start is not None:
        check_has_weights(start)
    origin = find_origin(start, out)
    settings = run_config(config, overrides or [], base=None if origin is None else origin.config)
    stopped_by = run_pretraining(
        settings, out, origin=origin, tensorboard=tensorboard, wandb=wandb, verify=not no_verify
    )
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)


@app.command()
def plan(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
) -> None:
    """Say what a run will need before it starts: parameters, memory, time."""
    from segue.api.configs import run_config
    from segue.cli.pretrain import print_plan

    print_plan(run_config(config, overrides or []))


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="Picture to write.")] = Path("runs.png"),
    replace: ReplaceFileOption = False,
) -> None:
    """Draw the losses of runs against each other."""
    from segue.cli.plot import plot_runs

    plot_runs(runs, out, replace=replace)


@app.command()
def evaluate(
    model: Annotated[
        str,
        typer.Argument(help="A model folder, a run folder, or a name (segue models). For --speed also a config."),
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
    replace: ReplaceFileOption = False,
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
        list[str] | None, typer.Option(metavar="MODEL", help="--recl: another model of the group; may be repeated.")
    ] = None,
    exact_context: Annotated[
        bool, typer.Option("--exact-context", help="--recl: no memory; a window from nothing for every token. Slow.")
    ] = False,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|FOLDER", help="Accuracy on minimal pairs (BLiMP): a jsonl file, .gz or .xz too, or a folder."
        ),
    ] = None,
    column: ColumnOption = None,
    orders: Annotated[
        int | None,
        typer.Option(
            min=1, help="--pairs, permutation models: mean over so many random orders. Default: pseudo-likelihood."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="--orders: decides them. Default: 0.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="--pairs: a row with both log-probabilities for each pair, as .jsonl or .csv.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="--pairs: all results as one JSON object.")] = False,
) -> None:
    """Perplexity and bits of a model on a text; or accuracy on minimal pairs, speed, or how much context it uses."""
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
        "--replace": replace,
        "--lengths": lengths,
        "--repeats": repeats,
        "--against": against or None,
        "--exact-context": exact_context,
        "--column": column or None,
        "--orders": orders,
        # A seed of 0 is given too.
        "--seed": None if seed is None else str(seed),
        "--out": out,
        "--json": as_json,
    }
    check_options(modes={"--speed": speed, "--recl": recl, "--pairs": pairs is not None}, given=given)
    if pairs is not None:
        from segue.cli.evaluate_pairs import run_pairs

        run_pairs(
            str(model),
            data,
            pairs,
            columns=column or [],
            orders=orders,
            seed=seed or 0,
            segment_length=segment_length,
            out=out,
            replace=replace,
            as_json=as_json,
        )
        return
    if speed:
        from segue.cli.evaluate_speed import run_speed

        run_speed(model, data, lengths=lengths, segment_length=segment_length, repeats=repeats or 3)
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
            replace=replace,
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
        replace=replace,
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where everything goes.")] = Path("demo"),
    steps: Annotated[int, typer.Option(min=1, help="Updates of each of the four models.")] = 500,
) -> None:
    """The main job in a few minutes: real text, prepared, pretrained, evaluated, compared."""
    from segue.cli.demo import run_demo

    run_demo(out, steps=steps)


for verb in (finetune, tune, predict, score, embed, generate, infill):
    app.command()(verb)


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
    largest_expansion: ExpansionOption = None,
    seed: Annotated[int, typer.Option(help="Decides the sample for training and the validation documents.")] = 0,
    replace: ReplaceFolderOption = False,
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
    replace: ReplaceFileOption = False,
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
def package(
    model: Annotated[str, typer.Argument(help="A run folder or a model folder.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; its name is the name of the model.")],
    license: Annotated[str, typer.Option(help="For the card: apache-2.0, mit, other, say.")],
    language: Annotated[list[str], typer.Option(help="For the card, any number: en, zh, say.")],
    notes: Annotated[
        Path | None, typer.Option(help="Markdown that ends the card: what the data is, how it was trained, figures.")
    ] = None,
    trunk: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Keep only the differences to this packaged model, and the head."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="--trunk: of the differences. Default: 8.")] = None,
    replace: ReplaceFolderOption = False,
) -> None:
    """Write a model in 16 bits with its card, to be used by its name: in the package, or with SEGUE_MODELS=FOLDER.

    Of a pretraining run, the averaged weights are written.
    """
    from segue.cli.package import run_packaging

    if rank is not None and trunk is None:
        raise ConfigError("--rank must go with --trunk; got it alone. Name the packaged model, or leave it out.")
    run_packaging(
        model,
        out,
        licence=license,
        languages=language,
        notes=notes,
        trunk=trunk,
        rank=rank,
        replace=replace,
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
        Path | None, typer.Option(help="A spiece.model, vocab.txt, pickled vocabulary or tokeniser folder elsewhere.")
    ] = None,
    sha256: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DIGEST",
            help="Expected sha256 of the weights, or of the file NAME that is read; anything else is refused. "
            "Repeatable.",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option(help="Compare logits on real text with transformers, where it is installed.")
    ] = True,
    replace: ReplaceFolderOption = False,
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
        sha256=sha256 or [],
        compare=compare,
        replace=replace,
    )


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name (segue models).")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    what: Annotated[
        Literal["encoder", "step"],
        typer.Option(
            help="encoder: ids to the states of the last layer, of any model; a head is left out. step: a token of "
            "each row and the memory, to log-probabilities and the next memory."
        ),
    ],
    format: Annotated[
        Literal["onnx", "torch"], typer.Option(help="torch: a .pt2 of torch.export, for PyTorch alone.")
    ] = "onnx",
    memory_length: Annotated[
        int | None, typer.Option(min=1, help="Of a step: earlier tokens that each token sees; as in the model.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Of a step: streams read side by side; 1.")] = None,
    replace: ReplaceFolderOption = False,
) -> None:
    """Write a model as ONNX or for torch.export, and check that it computes the same."""
    from segue.cli.export import run_export
    from segue.infer.export import ExportSettings

    run_export(
        model,
        out,
        ExportSettings(what=what, format=format, memory_length=memory_length, rows=rows),
        replace=replace,
    )


@app.command()
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL...",
            help="Model folders, run folders, fine-tuned ones, checkpoints, packaged models, or names on the hub; NAME "
            "is what requests call it. Default: the name of the folder. Without any: all packaged models.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; other hosts than this one need --keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    keys: Annotated[Path | None, typer.Option(help="File with a line for each key: TENANT KEY.")] = None,
    sessions: Annotated[
        str | None,
        typer.Option(help="File that keeps sessions over a restart. Default: a temporary one, gone at the end."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A limit: max_tokens=1000, say. Repeatable.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Load the models, open what is needed, and stop.")] = False,
) -> None:
    """Serve models over HTTP, with sessions that remember: OpenAI's interface for text, and one route for each task.

    Ctrl-C or SIGTERM lets requests end, saves all sessions and stops it.
    """
    from segue.cli.serve import run_server

    run_server(models or [], host=host, port=port, keys=keys, sessions=sessions, overrides=settings or [], check=check)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A file or a folder.")],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
) -> None:
    """Say what a file or folder is, of anyone's format, without loading weights."""
    from segue.cli.inspect_store import print_store

    if not print_store(path):
        from segue.cli.inspect import run_inspection

        run_inspection(path, tensors=tensors)
