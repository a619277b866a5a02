"""Text generation: continuing a prompt, or filling gaps in a text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, overload

from segue.api.errors import python_errors
from segue.api.models import ModelLike, check_language_model, text_model
from segue.arguments import Bias, Number, OneText, Positive
from segue.errors import ConfigError
from segue.infer.batched import write_batched
from segue.infer.generation import GeneratedToken
from segue.infer.infill import InfilledText, infill_text
from segue.infer.infill import Order as InfillOrder
from segue.infer.sampling import SamplingSettings
from segue.infer.session import Session
from segue.text.tokenizer import Tokenizer

MOST_TEXTS = 1_000_000
"""Maximum number of samples of a call."""
TOGETHER = 16
"""Number of samples to generate in one batch."""
MOST_FILLED = 4096
"""Maximum number of tokens in all gaps; the whole text is read once for each of them."""


@overload
def generate(
    model: ModelLike,
    prompt: OneText = ...,
    *,
    max_tokens: Positive = ...,
    sampling: SamplingSettings | None = ...,
    bias: Bias | None = ...,
    stop: Sequence[str] = ...,
    choices: Sequence[str] = ...,
    beam: Positive | None = ...,
    length_penalty: float = ...,
    count: None = ...,
    memory_length: Positive | None = ...,
    int8: bool = ...,
) -> str: ...


@overload
def generate(
    model: ModelLike,
    prompt: OneText = ...,
    *,
    max_tokens: Positive = ...,
    sampling: SamplingSettings | None = ...,
    bias: Bias | None = ...,
    stop: Sequence[str] = ...,
    choices: Sequence[str] = ...,
    beam: Positive | None = ...,
    length_penalty: float = ...,
    count: Positive,
    memory_length: Positive | None = ...,
    int8: bool = ...,
) -> list[str]: ...


@python_errors
def generate(
    model: ModelLike,
    prompt: OneText = "",
    *,
    max_tokens: Positive = 200,
    sampling: SamplingSettings | None = None,
    bias: Bias | None = None,
    stop: Sequence[str] = (),
    choices: Sequence[str] = (),
    beam: Positive | None = None,
    length_penalty: float = 0.0,
    count: Annotated[int, Number(least=1, most=MOST_TEXTS)] | None = None,
    memory_length: Positive | None = None,
    int8: bool = False,
) -> str | list[str]:
    """Continue a prompt of any length.

    To stream the text, or to continue after it, use a session: `segue.open(model).stream(prompt)`.

    Args:
        model: A name, a folder, or a loaded model: Transformer-XL, GPT or XLNet.
        prompt: Text to continue. Default: the beginning of a document.
        max_tokens: Maximum number of tokens to generate.
        sampling: Sampling settings, e.g. `segue.SamplingSettings(temperature=0.8, top_p=0.9, seed=1)`. Default: top-k
            sampling with k = 40 at temperature 1.
        bias: Numbers to add to the logits of tokens; `-math.inf` forbids a token. A key is a token as the tokeniser
            shows it, a text of one token, or an id such as "#12".
        stop: Stop sequences, not included in the result.
        choices: Candidate texts, of which exactly one is generated.
        beam: Beam width, to search for the most likely text instead of sampling. Default: no beam search.
        length_penalty: Length penalty of the beam search; larger values favour longer texts.
        count: Number of texts; the result is then a list. Sampled texts use consecutive seeds, starting with that of
            `sampling`; a beam search returns its best texts. Default: one text, as a `str`.
        memory_length: Memory length in tokens. Default: as in training.
        int8: Whether to quantise weights to 8 bits: faster on a CPU, with nearly the same results.

    Returns:
        The generated text without the prompt; with `count`, a list of texts.

    Raises:
        ConfigError: If settings are inconsistent, or the model cannot generate text.

    Examples:
        >>> text = segue.generate("model", "The room was", max_tokens=5)
        >>> several = segue.generate("model", "The room was", max_tokens=5, count=3)
        >>> text == several[0], len(several)
        (True, 3)
        >>> segue.generate("model", "The film was", choices=[" good", " bad"]) in (" good", " bad")
        True
    """
    if beam is not None and (sampling is not None or bias or stop or choices):
        raise ConfigError(
            "a beam search cannot be combined with sampling, bias, stop or choices; got both. Leave one out."
        )
    if count is not None and choices:
        raise ConfigError("choices cannot be combined with count; got both. Leave one out.")
    check_language_model(model)
    session = Session(text_model(model), memory_length=memory_length, int8=int8)
    settings = biased(sampling or SamplingSettings(), bias or {}, session.tokenizer)
    session.feed(prompt)
    if beam is not None:
        found = session.search(beam=beam, count=count or 1, max_tokens=max_tokens, length_penalty=length_penalty)
        texts = [one.text for one in found]
        return texts if count is not None else texts[0]
    if count is None:
        return "".join(session.stream(max_tokens=max_tokens, sampling=settings, stop=stop, choices=choices))
    return _samples(session, settings, count=count, max_tokens=max_tokens, stop=stop)


def _samples(
    session: Session, settings: SamplingSettings, *, count: int, max_tokens: int, stop: Sequence[str]
) -> list[str]:
    texts = [""] * count
    for group in write_samples(session, settings, count=count, max_tokens=max_tokens, stop=stop):
        for number, one in group.tokens:
            texts[number] += one.text
    return texts


@dataclass(frozen=True, kw_only=True)
class SampleGroup:
    """A batch of samples generated together."""

    numbers: range
    """Indices of the samples, counted from 0."""
    tokens: Iterator[tuple[int, GeneratedToken]]
    """Tokens as they are generated, each with the index of its sample."""


def write_samples(
    session: Session, settings: SamplingSettings, *, count: int, max_tokens: int, stop: Sequence[str]
) -> Iterator[SampleGroup]:
    """Generate several continuations of what the session has read, in groups, token by token; the session is unchanged.
    Samples use consecutive seeds. Each group must be consumed or abandoned before the next."""
    session.ready()
    for begin in range(0, count, TOGETHER):
        numbers = range(begin, min(begin + TOGETHER, count))
        own = [replace(settings, seed=settings.seed + number) for number in numbers]
        written = write_batched([session.fork() for _ in numbers], max_tokens=max_tokens, sampling=own, stop=stop)
        yield SampleGroup(numbers=numbers, tokens=_numbered(written, begin))


def _numbered(written: Iterator[tuple[int, GeneratedToken]], begin: int) -> Iterator[tuple[int, GeneratedToken]]:
    for number, one in written:
        yield begin + number, one


@python_errors
def infill(
    model: ModelLike,
    text: OneText,
    *,
    gap: str = "___",
    length: Positive | Sequence[Positive] = 3,
    order: InfillOrder = "left_to_right",
    sampling: SamplingSettings | None = None,
    bias: Bias | None = None,
) -> InfilledText:
    """Fill gaps in a text with an XLNet, in any order, from the context on both sides.

    Args:
        model: A permutation model: a name, a folder, or a loaded model.
        text: A text with gaps.
        gap: Marker of a gap.
        length: Number of tokens in every gap, or a list with one number per gap.
        order: Order in which tokens are filled: "left_to_right", "right_to_left", "random" or "surest_first".
        sampling: Sampling settings. Default: the most likely token at each step.
        bias: Numbers to add to the logits of tokens, as for `generate`.

    Returns:
        The completed text (`text`), the filling of each gap (`gaps`), and every token with its log-probability
        (`result`).

    Raises:
        ConfigError: If the gaps are too long.
        DataError: If the model is not a permutation model, or the text has no gaps.

    Examples:
        >>> filled = segue.infill("xlnet", "The room was ___ and the staff were kind.", length=1)
        >>> filled.text.startswith("The room was"), len(filled.gaps)
        (True, 1)
    """
    total = length * max(1, text.count(gap) if gap else 1) if isinstance(length, int) else sum(length)
    if total > MOST_FILLED:
        raise ConfigError(
            f"--length must add up to at most {MOST_FILLED:,} tokens over all gaps; got {total:,}. Use shorter or "
            "fewer gaps."
        )
    check_language_model(model)
    source = text_model(model)
    settings = biased(sampling or SamplingSettings(greedy=True), bias or {}, source.tokenizer)
    return infill_text(source.model, source.tokenizer, text, gap=gap, lengths=length, order=order, settings=settings)


def biased(settings: SamplingSettings, bias: Mapping[str, float], tokenizer: Tokenizer) -> SamplingSettings:
    """Return the sampling settings with biases by token id, looked up in the tokeniser."""
    found = {token_id(token, tokenizer): number for token, number in bias.items()}
    return replace(settings, logit_bias={**settings.logit_bias, **found})


def token_id(token: str, tokenizer: Tokenizer) -> int:
    """Return the id of a token: as the tokeniser shows it, as a text of one token, or as "#12"."""
    if token.startswith("#") and token[1:].isascii() and token[1:].isdigit():
        return int(token[1:])
    shown = next((index for index in range(tokenizer.size) if tokenizer.token(index) == token), None)
    if shown is not None:
        return shown
    ids = tokenizer.encode(token).tolist()
    if len(ids) != 1:
        names = " ".join(f"{tokenizer.token(index)}=#{index}" for index in ids[:12])
        raise ConfigError(
            f"--bias must name a single token; got {token!r}, which has {len(ids)}: {names}. Name one of them, or its "
            "id."
        )
    return int(ids[0])
