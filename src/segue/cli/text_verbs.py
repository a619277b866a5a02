"""The verbs that read and write text with a pretrained model: score, embed, generate, infill."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from segue.cli.outputs import ReplaceFileOption
from segue.cli.table_verbs import ExpansionOption

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


def score(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name (segue models).")],
    texts: TextsArgument,
    by: Annotated[Literal["token", "line", "document"], typer.Option(help="What a row is.")] = "document",
    order: Annotated[
        Literal["forward", "backward", "random"],
        typer.Option(help="Of a permutation model: in what order the tokens of a segment are predicted."),
    ] = "forward",
    seed: Annotated[int, typer.Option(min=0, help="Of random orders.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Table to write. Left out: standard output.")] = None,
    replace: ReplaceFileOption = False,
    to: Annotated[
        Literal["jsonl", "csv", "tsv", "parquet"] | None,
        typer.Option(help="Its format. Left out: by its name, else jsonl."),
    ] = None,
    documents: DocumentsOption = None,
    field: FieldOption = "text",
    encoding: InputEncodingOption = "utf-8",
    largest_expansion: ExpansionOption = None,
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
        replace=replace,
        to=to,
        by=by,
        order=order,
        seed=seed,
        segment_length=segment_length,
        batch_tokens=batch_tokens,
        read=ReadSettings(document=documents, field=field, encoding=encoding, largest_expansion=largest_expansion),
        standard_input=input_format,
    )


def embed(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name (segue models).")],
    texts: TextsArgument,
    out: Annotated[Path, typer.Option(help="File to write: .npy, .parquet or .jsonl.")],
    replace: ReplaceFileOption = False,
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
    largest_expansion: ExpansionOption = None,
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
        replace=replace,
        settings=EmbedSettings(
            by=by, layer=layer, pool=pool, normalise=normalise, memory=memory, batch_tokens=batch_tokens
        ),
        segment_length=segment_length,
        text=text,
        read=ReadSettings(document=documents, field=field, encoding=encoding, largest_expansion=largest_expansion),
        standard_input=input_format,
    )


TemperatureOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Below 1, likely tokens become likelier; above 1, less so. Left out: 1.")
]
TopKOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N|all", help="Only so many of the likeliest tokens. Left out: 40.")
]
TopPOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Only the likeliest tokens that have together this probability.")
]
MinPOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Only tokens with this part of the probability of the likeliest.")
]
TypicalOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Only the most typical tokens that have together this probability.")
]
RepetitionPenaltyOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Above 1, tokens that came lately become less likely.")
]
BiasOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOKEN=NUMBER", help="Added to the logit of a token, or of an id: #12=-5; -inf forbids. Repeatable."
    ),
]
SeedOption: TypeAlias = Annotated[int | None, typer.Option(help="The same seed gives the same text. Left out: 0.")]
GreedyOption: TypeAlias = Annotated[bool, typer.Option("--greedy", help="The likeliest token each time.")]
AlternativesOption: TypeAlias = Annotated[
    int | None, typer.Option(min=0, help="So many of the likeliest tokens beside each.")
]


def generate(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, a checkpoint, or a name (segue models).")],
    prompt: Annotated[
        str, typer.Argument(metavar="[PROMPT|-]", help="What to go on with, or - for standard input, of any size.")
    ] = "",
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens to write. Left out: 200, with --beam 64.")
    ] = None,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    min_p: MinPOption = None,
    typical: TypicalOption = None,
    repetition_penalty: RepetitionPenaltyOption = None,
    bias: BiasOption = None,
    seed: SeedOption = None,
    greedy: GreedyOption = False,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text. Repeatable.")] = None,
    choice: Annotated[list[str] | None, typer.Option(help="Write one of these texts. Repeatable.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="The likeliest texts, by beam search this wide.")] = None,
    n_best: Annotated[int | None, typer.Option(min=1, help="--beam: how many of them. Left out: 1.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="--beam: more favours longer texts. Left out: 0.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="So many texts after the same prompt.")] = None,
    log_probabilities: Annotated[
        bool, typer.Option("--log-probabilities", help="A table of the tokens after the text.")
    ] = False,
    alternatives: AlternativesOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each token, or for each text of --beam.")
    ] = False,
    chat: Annotated[bool, typer.Option("--chat", help="Reply to every line of the terminal, or of a pipe.")] = False,
    memory_length: Annotated[
        int | None, typer.Option(min=1, help="How many earlier tokens each token sees. Left out: as in training.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in 8 bits: faster, nearly the same numbers.")] = False,
    save: Annotated[Path | None, typer.Option(help="File for the session, to go on later.")] = None,
    replace: ReplaceFileOption = False,
    load: Annotated[Path | None, typer.Option(help="A saved session to go on with.")] = None,
    encoding: InputEncodingOption = "utf-8",
) -> None:
    """Go on with a prompt, streamed to the terminal; or chat.

    Transformer-XL, GPT and XLNet. A prompt of any length is read at constant cost and memory.
    """
    from segue.cli.generate import GenerateOptions, run_generation

    run_generation(
        model,
        prompt,
        GenerateOptions(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical=typical,
            repetition_penalty=repetition_penalty,
            bias=bias or [],
            seed=seed,
            greedy=greedy,
            stop=stop or [],
            choices=choice or [],
            beam=beam,
            n_best=n_best,
            length_penalty=length_penalty,
            count=count,
            log_probabilities=log_probabilities,
            alternatives=alternatives,
            as_json=json,
            chat=chat,
            memory_length=memory_length,
            int8=int8,
            save=save,
            replace=replace,
            load=load,
            encoding=encoding,
        ),
    )


def infill(
    model: Annotated[str, typer.Argument(help="An XLNet: a model folder, a run folder, or a name (segue models).")],
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="A text with gaps, or - for standard input.")],
    gap: Annotated[str, typer.Option(help="How a gap is marked.")] = "___",
    length: Annotated[str, typer.Option(metavar="N[,N...]", help="Tokens of all gaps, or of each.")] = "3",
    order: Annotated[
        Literal["left_to_right", "right_to_left", "random", "surest_first"],
        typer.Option(help="In what order the tokens are filled in."),
    ] = "left_to_right",
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    min_p: MinPOption = None,
    typical: TypicalOption = None,
    repetition_penalty: RepetitionPenaltyOption = None,
    bias: BiasOption = None,
    seed: SeedOption = None,
    greedy: GreedyOption = False,
    alternatives: AlternativesOption = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    encoding: InputEncodingOption = "utf-8",
) -> None:
    """Fill the gaps of a text, in any order, from what is on both sides.

    The most probable token is taken each time. --temperature, --top-k, --top-p, --min-p and --typical sample instead.
    """
    from segue.cli.infill import InfillOptions, run_infilling

    run_infilling(
        model,
        text,
        InfillOptions(
            gap=gap,
            length=length,
            order=order,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical=typical,
            repetition_penalty=repetition_penalty,
            bias=bias or [],
            seed=seed,
            greedy=greedy,
            alternatives=alternatives,
            as_json=json,
            encoding=encoding,
        ),
    )
