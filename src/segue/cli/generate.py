"""`segue generate`: the continuation of a prompt, streamed to the terminal."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from segue.api.generate import write_samples
from segue.api.models import Session, check_language_model
from segue.api.models import open as open_session
from segue.cli.chat import run_chat
from segue.cli.options import InputEncodingOption, ModelArgument, ReplaceFileOption, SamplingOptions
from segue.cli.writing import (
    STANDARD_INPUT,
    Screen,
    biased,
    check_place,
    enough_memory,
    feed,
    interrupts,
    load_session,
    prompt_pieces,
    sampling_settings,
    save_session,
    show_table,
)
from segue.errors import ConfigError
from segue.infer.generation import GeneratedToken
from segue.infer.sampling import SamplingSettings

MAX_TOKENS, MAX_BEAM_TOKENS = 200, 64
MOST_PENALTY = 10
"""Largest length penalty in beam search: beyond it numbers overflow."""
_OF_BEAM = {"--n-best", "--length-penalty"}
_OF_SAMPLING = {
    "--temperature",
    "--top-k",
    "--top-p",
    "--min-p",
    "--typical",
    "--repetition-penalty",
    "--bias",
    "--seed",
    "--greedy",
}
_DRAWING = {"--temperature", "--top-k", "--top-p", "--min-p", "--typical", "--seed"}
"""Options without effect when nothing is sampled."""
_NOT_WITH = {
    "--beam": {*_OF_SAMPLING, "--stop", "--choice", "--count", "--log-probabilities", "--alternatives", "--chat"},
    "--count": {"--choice", "--greedy", "--save", "--chat"},
    "--chat": {"--json", "--log-probabilities", "--alternatives"},
    "--choice": {"--max-tokens", "--stop"},  # a choice would not be complete
    "--greedy": _DRAWING,
    "--json": {"--log-probabilities"},
}
_ONLY_WITH = dict.fromkeys(_OF_BEAM, ("--beam",)) | {"--alternatives": ("--log-probabilities", "--json")}
_ONLY_WITH |= {"--replace": ("--save", "--chat")}


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(SamplingOptions):
    """Options of `segue generate`; None if not given."""

    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of tokens to generate. Default: 200, with --beam 64.")
    ] = None
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Stop sequence, not included in the output. Repeatable.")
    ] = None
    choices: Annotated[
        list[str] | None,
        typer.Option(
            "--choice", metavar="TEXT", help="Candidate text; exactly one candidate is generated. Repeatable."
        ),
    ] = None
    beam: Annotated[
        int | None, typer.Option(min=1, help="Beam width, to search for the most likely text. Default: sampling.")
    ] = None
    n_best: Annotated[
        int | None, typer.Option(min=1, help="Number of texts to return from the beam search. Default: 1.")
    ] = None
    length_penalty: Annotated[
        float | None,
        typer.Option(help="Length penalty of the beam search; larger values favour longer texts. Default: 0."),
    ] = None
    count: Annotated[int | None, typer.Option(min=1, help="Number of samples. Default: 1.")] = None
    log_probabilities: Annotated[
        bool, typer.Option("--log-probabilities", help="Print a table of tokens and log-probabilities after the text.")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per token, or per text of a beam search.")
    ] = False
    chat: Annotated[bool, typer.Option("--chat", help="Reply to each line of input, from a terminal or a pipe.")] = (
        False
    )
    memory_length: Annotated[
        int | None, typer.Option(min=1, help="Memory length in tokens. Default: as in training.")
    ] = None
    int8: Annotated[
        bool, typer.Option("--int8", help="Quantise weights to 8 bits: faster on a CPU, with nearly the same results.")
    ] = False
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="File to save the session in.")] = None
    replace: ReplaceFileOption = False
    load: Annotated[Path | None, typer.Option(metavar="FILE", help="Saved session to continue.")] = None
    encoding: InputEncodingOption = "utf-8"

    def given(self) -> dict[str, object]:
        """Return the given options by their names on the command line."""
        names = {"choices": "--choice", "as_json": "--json"}
        options = {names.get(name, "--" + name.replace("_", "-")): value for name, value in vars(self).items()}
        # 0 is a value, though it equals False.
        return {name: value for name, value in options.items() if value or (value == 0 and value is not False)}


def run_generation(model: str, prompt: str, options: GenerateOptions) -> None:
    """Generate text and write it to standard output."""
    check_options(options.given())
    if options.chat and prompt == STANDARD_INPUT:
        raise ConfigError("--chat reads standard input line by line; got - as the prompt as well. Leave one out.")
    check_language_model(model)
    check_place(options.save, replace=options.replace, loaded=options.load, model=model)
    sampling = sampling_settings(options, show_alternatives=options.log_probabilities)
    with enough_memory():
        _generate(model, prompt, sampling, options)


def _generate(model: str, prompt: str, sampling: SamplingSettings, options: GenerateOptions) -> None:
    session = open_session(model, memory_length=options.memory_length, int8=options.int8)
    sampling = biased(sampling, options.bias, session.tokenizer)
    session.generation(
        sampling=sampling, stop=options.stop or (), choices=options.choices or ()
    )  # checks the settings before reading
    load_session(session, options.load)
    feed(session, prompt_pieces(prompt, encoding=options.encoding))
    if options.chat:
        run_chat(
            session,
            max_tokens=options.max_tokens or MAX_TOKENS,
            sampling=sampling,
            stop=options.stop or (),
            choices=options.choices or (),
            encoding=options.encoding,
            replace=options.replace,
            loaded=options.load,
            model=model,
        )
    elif options.beam is not None:
        _search(session, options)
    elif options.count is not None:
        _write_samples(session, sampling, options)
    else:
        _write_one(session, sampling, options)
    save_session(session, options.save)


def check_options(given: Mapping[str, object]) -> None:
    """Raise ConfigError for options without effect, or that contradict each other."""
    problems = []
    for name, others in _NOT_WITH.items():
        wrong = [other for other in given if other in others]
        if name in given and wrong:
            problems.append(f"{name} cannot be combined with {', '.join(wrong)}; got both. Leave one out.")
    for name, others_ in _ONLY_WITH.items():
        if name in given and not any(other in given for other in others_):
            problems.append(f"{name} requires {' or '.join(others_)}; got it alone. Add one, or leave it out.")
    penalty = given.get("--length-penalty", 0.0)
    assert isinstance(penalty, float)
    if not 0 <= penalty <= MOST_PENALTY:
        problems.append(f"--length-penalty must be from 0 to {MOST_PENALTY}; got {penalty}. Use 1, for example.")
    if problems:
        raise ConfigError(" ".join(problems))


# ---------------------------------------------------------------------------------------------------------- generation


def _write_one(session: Session, sampling: SamplingSettings, options: GenerateOptions) -> None:
    screen = Screen()
    tokens: list[GeneratedToken] = []
    with interrupts() as interrupt:
        written = session.write(
            max_tokens=options.max_tokens or MAX_TOKENS,
            sampling=sampling,
            stop=options.stop or (),
            choices=options.choices or (),
        )
        for one in written:
            screen.show(_line(one) if options.as_json else one.text)
            tokens.append(one)
            if interrupt.asked:
                break
    screen.end_line()
    if options.log_probabilities:
        _show_tokens(tokens)
    if interrupt.asked:
        save_session(session, options.save)
        raise KeyboardInterrupt


def _write_samples(session: Session, sampling: SamplingSettings, options: GenerateOptions) -> None:
    """Generate samples in groups: the first of a group is streamed, the others are printed when they are complete."""
    screen = Screen()
    assert options.count is not None
    groups = write_samples(
        session, sampling, count=options.count, max_tokens=options.max_tokens or MAX_TOKENS, stop=options.stop or ()
    )
    for group in groups:
        tokens: dict[int, list[GeneratedToken]] = {number: [] for number in group.numbers}
        first = group.numbers[0]
        if not options.as_json:
            screen.show(_heading(first))
        with interrupts() as interrupt:
            for number, one in group.tokens:
                tokens[number].append(one)
                if options.as_json:
                    screen.show(_line(one, sample=number + 1))
                elif number == first:
                    screen.show(one.text)
                if interrupt.asked:
                    break
        for number, own in tokens.items():
            if not options.as_json and number > first:
                screen.show(_heading(number) + "".join(one.text for one in own))
            screen.end_line()
            if options.log_probabilities:
                _show_tokens(own)
        if interrupt.asked:
            raise KeyboardInterrupt


def _search(session: Session, options: GenerateOptions) -> None:
    found = session.search(
        beam=options.beam or 1,
        count=options.n_best or 1,
        max_tokens=options.max_tokens or MAX_BEAM_TOKENS,
        length_penalty=options.length_penalty or 0.0,
    )
    screen = Screen()
    for number, one in enumerate(found):
        if options.as_json:
            row = {"text": one.text, "tokens": one.tokens, "log_probability": one.log_probability, "score": one.score}
            screen.show(json.dumps(row, ensure_ascii=False) + "\n")
            continue
        if len(found) > 1:
            screen.show(_heading(number, f"log p {one.log_probability:.3f}, score {one.score:.3f}"))
        screen.show(one.text)
        screen.end_line()


# ------------------------------------------------------------------------------------------------------------- output


def _heading(number: int, more: str = "") -> str:
    return f"--- {number + 1}{': ' if more else ''}{more}\n"


def _line(one: GeneratedToken, *, sample: int | None = None) -> str:
    row: dict[str, object] = {} if sample is None else {"sample": sample}
    row |= {
        "text": one.text,
        "token": one.token,
        "id": one.id,
        "log_probability": None if one.id is None else one.log_probability,
    }
    if one.alternatives:
        row["alternatives"] = [{"token": token, "log_probability": value} for token, value in one.alternatives]
    return json.dumps(row, ensure_ascii=False) + "\n"


def _show_tokens(tokens: Iterable[GeneratedToken]) -> None:
    show_table([(one.token, one.log_probability, one.alternatives) for one in tokens if one.id is not None])


def generate(
    model: ModelArgument,
    options: GenerateOptions,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT|-", help="Text to continue, or - for standard input.")] = "",
) -> None:
    """Continue a prompt, streaming the text to the terminal; or chat.

    For Transformer-XL, GPT and XLNet. Prompts may have any length: cost and memory per token are constant.

    \b
    Example:
      segue generate model "The room was" --max-tokens 40
    """
    run_generation(model, prompt, options)
