"""`segue infill`: gaps in a text, filled by an XLNet."""

import json
import re
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.api.generate import infill as infilled
from segue.api.models import check_language_model, text_model
from segue.cli.evaluate import whole_numbers
from segue.cli.options import InputEncodingOption, ModelArgument, SamplingOptions
from segue.cli.writing import biased, prompt_pieces, sampling_settings, visible
from segue.errors import ConfigError, DataError
from segue.infer.infill import InfilledText
from segue.infer.text_model import TextModel

MOST_CHARACTERS = 20_000
"""Maximum number of characters: the whole text is read at once, and every token attends to every other."""


@dataclass(frozen=True, kw_only=True)
class InfillOptions(SamplingOptions):
    """Options of `segue infill`; None if not given."""

    gap: Annotated[str, typer.Option(metavar="MARK", help="Marker of a gap.")] = "___"
    length: Annotated[
        str, typer.Option(metavar="N[,N...]", help="Number of tokens in every gap, or one number for each gap.")
    ] = "3"
    order: Annotated[
        Literal["left_to_right", "right_to_left", "random", "surest_first"],
        typer.Option(help="Order in which tokens are filled."),
    ] = "left_to_right"
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    encoding: InputEncodingOption = "utf-8"


def run_infilling(model: str, text: str, options: InfillOptions) -> None:
    """Print the text with the gaps filled and marked, and the tokens in the order of filling."""
    lengths = whole_numbers(options.length, option="--length")
    check_language_model(model)
    settings = sampling_settings(_choosing(options), show_alternatives=not options.as_json)
    source = text_model(model)
    settings = biased(settings, options.bias, source.tokenizer)
    whole = ""
    for piece in prompt_pieces(text, encoding=options.encoding):
        whole += piece
        if len(whole) > MOST_CHARACTERS:
            raise DataError(
                f"a text with gaps must have at most {MOST_CHARACTERS:,} characters, since it is read at once; got "
                "more. Shorten it around the gaps."
            )
    found = infilled(
        source,
        whole,
        gap=options.gap,
        length=lengths[0] if len(lengths) == 1 else lengths,
        order=options.order,
        sampling=settings,
    )
    if options.as_json:
        print(json.dumps(_row(found, source), ensure_ascii=False))
        return
    console = Console(highlight=False, emoji=False)
    console.print(_marked(whole, found, gap=options.gap, terminal=console.is_terminal), soft_wrap=True)
    console.print()
    console.print(_table(found, source))
    console.print(f"log-probability {found.result.log_probability:.3f}, filled {options.order.replace('_', ' ')}")


def _choosing(options: InfillOptions) -> InfillOptions:
    """Return the options for greedy decoding, unless an option requests sampling."""
    drawing = [
        "--" + name.replace("_", "-")
        for name in ("temperature", "top_k", "top_p", "min_p", "typical")
        if getattr(options, name) is not None
    ]
    if options.greedy and drawing:
        raise ConfigError(f"--greedy cannot be combined with {', '.join(drawing)}; got both. Leave one out.")
    return replace(options, greedy=not drawing)


def _marked(text: str, found: InfilledText, *, gap: str, terminal: bool) -> Text:
    """Return the text with the fillings underlined; in brackets if the output cannot be underlined."""
    shown = Text()
    place = 0
    for part, filling in zip(re.split(f"(?:{re.escape(gap)})+", text), [*found.gaps, ""], strict=True):
        if not found.text.startswith(part + filling, place):
            part = part.removesuffix(" ")  # the filling begins with this space
        inner = filling.lstrip(" ")
        shown.append(part + filling[: len(filling) - len(inner)])
        if inner:
            shown.append(inner if terminal else f"[{inner}]", style="bold underline" if terminal else "")
        place += len(part) + len(filling)
    return shown


def _table(found: InfilledText, source: TextModel) -> Table:
    table = Table("step", "place", "token", box=None, pad_edge=False)
    table.add_column("log p", justify="right")
    table.add_column("likeliest")
    for number, (piece, one) in enumerate(zip(found.pieces, found.result.filled, strict=True), start=1):
        others = "  ".join(f"{visible(source.tokenizer.token(index))} {value:.2f}" for index, value in one.alternatives)
        table.add_row(str(number), str(one.position), Text(visible(piece)), f"{one.log_probability:.3f}", Text(others))
    return table


def _row(found: InfilledText, source: TextModel) -> dict[str, object]:
    return {
        "text": found.text,
        "gaps": found.gaps,
        "log_probability": found.result.log_probability,
        "tokens": [
            {
                "token": piece,
                "id": one.token,
                "position": one.position,
                "log_probability": one.log_probability,
                "alternatives": [
                    {"token": source.tokenizer.token(index), "log_probability": value}
                    for index, value in one.alternatives
                ],
            }
            for piece, one in zip(found.pieces, found.result.filled, strict=True)
        ],
    }


def infill(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="Text with gaps, or - for standard input.")],
    options: InfillOptions,
) -> None:
    """Fill gaps in a text with an XLNet.

    Tokens are filled in any order, from the context on both sides. By default the most likely token is taken at each
    step; --temperature, --top-k, --top-p, --min-p and --typical sample instead.

    \b
    Example:
      segue infill xlnet "The room was ___ and the staff were kind."
    """
    run_infilling(model, text, options)
