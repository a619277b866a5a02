"""`segue explain`: an explanation of a model and a text, as a page or an image."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from segue.api.explain import explain_answer, explain_text, head_picture, save_explanation, text_file
from segue.api.models import path_of
from segue.api.plot import check_picture, figure, write_picture
from segue.checkpoint.folder import TASK
from segue.cli.evaluate import whole_numbers
from segue.cli.options import InputEncodingOption, ModelArgument, ReplaceFileOption
from segue.cli.writing import prompt_pieces
from segue.errors import ConfigError, DataError
from segue.explain.report import Explanation
from segue.files import check_file
from segue.infer.score import Order

MOST_BYTES = 4 * 2**20
"""Maximum size of a text file in bytes: far more than the maximum number of tokens."""
PAGE = {".html", ".htm"}


def explain(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT|FILE|-", help="Text, text file, or - for standard input.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Page to write, .html; or an image of one head, .png or .svg.")
    ],
    replace: ReplaceFileOption = False,
    order: Annotated[
        str,
        typer.Option(
            metavar="ORDER",
            help="Permutation models: factorisation order; forward, backward, random, or comma-separated positions.",
        ),
    ] = "forward",
    seed: Annotated[int, typer.Option(min=0, help="Seed for random orders and rankings.")] = 0,
    task_model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Fine-tuned model whose prediction to explain as well."),
    ] = None,
    row: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="JSON object of texts by role, for a task with several texts."),
    ] = None,
    beside_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Second model, shown beside the first.")
    ] = None,
    beside_text: Annotated[
        str | None, typer.Option(metavar="TEXT|FILE", help="Second text, shown beside the first.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(metavar="N[,N...]", help="Layers whose attention maps to show. Default: all.")
    ] = None,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations/--no-ablations",
            help="Whether to measure the loss without each term, head, and memory. Default: yes.",
        ),
    ] = True,
    segment_length: Annotated[
        int | None, typer.Option(min=1, help="Segment length in tokens. Default: as in training.")
    ] = None,
    layer: Annotated[int, typer.Option(help="Layer to draw in an image; negative numbers count from the end.")] = 0,
    head: Annotated[int, typer.Option(min=0, help="Head to draw in an image.")] = 0,
    stream: Annotated[
        Literal["content", "query"], typer.Option(help="Attention stream to draw in an image.")
    ] = "content",
    show: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Quantity to draw in an image: probability, score, or a term such as position."
        ),
    ] = "probability",
    encoding: InputEncodingOption = "utf-8",
) -> None:
    """Show attention, the terms of its scores, and the words behind a prediction.

    The page is a single self-contained file. It shows the attention of every head, split into the terms of its score;
    the share of each term; the loss without each term, head, or memory; for XLNet, a factorisation order step by step;
    and for a fine-tuned model, the words that decided, with measures of faithfulness.

    \b
    Example:
      segue explain model review.txt --out page.html
      segue explain xlnet "The room was clean." --order random --out page.html
      segue explain model review.txt --layer 1 --head 0 --out head.png
    """
    read = [_file_of(text), _file_of(beside_text)]
    inputs = [*map(path_of, filter(None, (model, beside_model, task_model))), *filter(None, read)]
    wanted = _order(order)
    whole = _text(text, encoding)
    if out.suffix.lower() not in PAGE:
        check_picture(out, replace=replace, inputs=inputs)
        map_TT = head_picture(
            model,
            whole,
            layer=layer,
            head=head,
            stream=stream,
            shown=show,
            order=wanted,
            seed=seed,
            segment_length=segment_length,
        )
        write_picture(
            _drawn(map_TT, f"{Path(model).name}, layer {layer}, head {head}: {show}"),
            out,
            replace=replace,
            inputs=inputs,
        )
        print(out)
        return
    check_file(out, replace=replace, inputs=inputs)
    given = _row(row, whole)
    chosen = None if layers is None else whole_numbers(layers, option="--layers")

    def side(name: str, of: str) -> Explanation:
        words = None
        if (path_of(name) / TASK).is_file():
            return Explanation(name=Path(name).name, text=of, words=explain_answer(name, given, seed=seed))
        if task_model is not None and (row is None or of == whole):  # a row goes with the first text
            words = explain_answer(task_model, given if of == whole else of, seed=seed)
        made = explain_text(
            name,
            of,
            name=Path(name).name,
            order=wanted,
            seed=seed,
            layers=chosen,
            ablate=ablations,
            segment_length=segment_length,
        )
        return made if words is None else Explanation(**vars(made) | {"words": words})

    first = side(model, whole)
    second = None
    if beside_model is not None or beside_text is not None:
        second = side(beside_model or model, whole if beside_text is None else _text(beside_text, encoding))
    for shown in (first,) if second is None else (first, second):
        _summary(shown)
    check_file(out, replace=replace, inputs=inputs)
    save_explanation(out, first, beside=second, replace=replace)
    print(out)


def _order(order: str) -> Order | list[int]:
    if order in ("forward", "backward", "random"):
        return order  # type: ignore[return-value]
    return whole_numbers(order, option="--order")


def _file_of(text: str | None) -> Path | None:
    """Return the file that an argument names, if it names one."""
    with suppress(OSError, ValueError):  # a text is often too long to be a file name
        if text is not None and Path(text).is_file():
            return Path(text)
    return None


def _text(text: str, encoding: str) -> str:
    path = _file_of(text)
    if path is None:
        whole = ""
        for piece in prompt_pieces(text, encoding=encoding):
            whole += piece
            if len(whole) > MOST_BYTES:
                raise DataError(
                    f"a text to explain must have at most {MOST_BYTES:,} characters; got more. Give a part of it."
                )
        return whole
    return text_file(path, encoding=encoding, most_bytes=MOST_BYTES)


def _row(row: str | None, text: str) -> str | dict[str, Any]:
    if row is None:
        return text
    try:
        found = json.loads(row)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(
            f"""--row must be a JSON object; got {row[:60]!r}. Write '{{"context": "...", "question": "..."}}', for
            example."""
        )
    return found


def _summary(shown: Explanation) -> None:
    """Print a short summary of the explanation."""
    console = Console(stderr=True, highlight=False, emoji=False)
    if shown.reading is not None and shown.loss is not None:
        console.print(
            f"{shown.name}: {len(shown.reading.ids_T):,} tokens, loss {shown.loss:.4f} nats per token", markup=False
        )
        whole = [change for change in shown.changes if change.ablation.layer is None]
        for change in sorted(whole, key=lambda one: -one.change):
            what = "the memory" if change.ablation.memory else change.ablation.term
            console.print(f"  without {what}: {change.change:+.4f}", markup=False)
    if shown.words is not None:
        network = f"{shown.words.answer} ({shown.words.value:.4f})"
        console.print(f"{shown.words.task}: {shown.words.whole or network}", markup=False)
        if shown.words.whole is not None:
            console.print(
                f"  combined with n-grams; the network alone, which is explained, answers {network}",
                markup=False,
            )
        for method in shown.words.faithfulness:
            console.print(
                f"  {method.method.replace('_', ' ')}: comprehensiveness {method.comprehensiveness:.4f}, "
                f"sufficiency {method.sufficiency:.4f}",
                markup=False,
            )


def _drawn(map_TT: Any, title: str) -> Any:
    made, axes = figure()
    made.set_size_inches(8, 7.2)
    axes.grid(visible=False)
    drawn = axes.imshow(map_TT, interpolation="nearest", cmap="viridis")
    axes.set_title(title)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    made.colorbar(drawn, ax=axes)
    return made
