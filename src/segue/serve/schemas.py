"""What requests to write and to use sessions look like. Unknown fields are errors, values are not converted.

The names are those of OpenAI's interface where it has one. What it has not: `session`, `top_k`, `min_p`, `typical`,
`repetition_penalty`, `choices`. Limits that the person who runs the server can set are checked by the routes.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Whole = Annotated[int, Field(ge=0, le=2**31 - 1)]
Token = Annotated[int, Field(ge=0, le=2**31 - 1)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Number = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]


class Body(BaseModel):
    """A request."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Sampling(Body):
    """How tokens are chosen."""

    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    """0 takes the likeliest token; below 1, likely tokens become likelier. Default: 1."""
    top_p: Share | None = None
    """Only the likeliest tokens that have together this probability. Default: 1, all."""
    top_k: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Only so many of the likeliest tokens. Default: all."""
    min_p: Share | None = None
    """Only tokens with this part of the probability of the likeliest. Default: all."""
    typical: Share | None = None
    """Only the most typical tokens that have together this probability. Default: all."""
    repetition_penalty: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = None
    """Above 1, tokens that came lately become less likely. Default: 1."""
    logit_bias: dict[str, Number] | None = None
    """Ids of tokens, as texts, and what is added to their logits; -100 or less forbids a token."""
    seed: Annotated[int, Field(ge=-(2**63), le=2**64 - 1)] | None = None
    """The same seed gives the same text. Default: another one each time."""


class Writing(Sampling):
    """What and how to write."""

    max_tokens: Whole | None = None
    """Tokens to write at most. Default: 16."""
    stop: str | list[str] | None = None
    """A text, or texts, that end what is written; they are not given."""
    choices: list[str] | None = None
    """Exactly one of these texts is written."""
    stream: bool | None = None
    """Whether the text comes as it is written, in server-sent events."""


class StreamOptions(Body):
    """What else a stream has."""

    include_usage: bool | None = None
    """Whether a last chunk has the usage."""
    include_obfuscation: bool | None = None
    """Without effect: nothing is padded here."""


class CompletionRequest(Writing):
    """Writes on from a prompt."""

    model: str
    """A model that writes."""
    prompt: str | list[str] | list[Token] | list[list[Token]] = ""
    """A text or the ids of its tokens, or a list of these. Ids are read as they are; a text begins a document."""
    session: str | None = None
    """The session that reads the prompt and what is written. Default: none, nothing is remembered."""
    n: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Texts for each prompt. Default: 1."""
    best_of: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Must be as `n`, or left out."""
    echo: bool | None = None
    """Whether the prompt comes back before the text, with its log-probabilities where these are asked for."""
    logprobs: Whole | None = None
    """Number of likeliest tokens to return with each token and its log-probability. Default: none."""
    stream_options: StreamOptions | None = None
    """What else a stream has."""
    presence_penalty: float | None = None
    """Must be 0, or left out: use `repetition_penalty`."""
    frequency_penalty: float | None = None
    """Must be 0, or left out: use `repetition_penalty`."""
    suffix: str | None = None
    """Must be left out: /v1/infill fills gaps."""
    user: str | None = None
    """Without effect."""


class SessionRequest(Body):
    """Creates a session."""

    model: str | None = None
    """A model that writes. Default: the only one that is served."""


class WriteRequest(Writing):
    """A session reads a prompt and writes."""

    prompt: str = ""
    """Text that the session reads first."""
    logprobs: Whole | None = None
    """Number of likeliest tokens to return with each token. Default: 0."""


class ScoreRequest(Body):
    """A session reads a text and says how likely each of its tokens was."""

    text: str
    """The text."""
    logprobs: Whole | None = None
    """Number of likeliest tokens to return with each token. Default: 0."""
    keep: bool = True
    """Whether the session reads on from the end of the text; otherwise it stays where it was."""


# -------------------------------------------------------------------------------------------------------------- answers


class Problem(BaseModel):
    """What is wrong."""

    message: str
    """The thing, the rule, the value, the remedy."""
    type: str
    """The kind of error, by its status."""
    param: str | None
    """The field of the request."""
    code: str
    """For programs."""


class ErrorAnswer(BaseModel):
    """An error."""

    error: Problem
    """What is wrong."""


class PromptDetails(BaseModel):
    """How the tokens of a prompt were come by."""

    cached_tokens: int
    """Those that the session had read before."""
    read_tokens: int
    """Those that were read now."""
    skipped_tokens: int
    """Those that nothing later can see, so that the model did not have to read them."""


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    """All that comes before what is written: what the session had read, and what was given now."""
    completion_tokens: int
    """What was written."""
    total_tokens: int
    """Both."""
    prompt_tokens_details: PromptDetails
    """How many of the prompt tokens were reused."""


class LogProbabilities(BaseModel):
    """What the model thought of each token; natural logarithms."""

    tokens: list[str]
    """As the tokeniser shows them."""
    token_logprobs: list[float | None]
    """Null where nothing comes before the token."""
    top_logprobs: list[dict[str, float] | None]
    """The likeliest tokens in its place."""
    text_offset: list[int]
    """Where in the text it begins, in characters."""


class Choice(BaseModel):
    """One text."""

    index: int
    """Its number."""
    text: str
    """What was written."""
    logprobs: LogProbabilities | None
    """Where they were asked for."""
    finish_reason: Literal["stop", "length"] | None
    """`stop`: the text has ended by itself or at a stop string. `length`: after max_tokens. Null: it goes on."""


class Completion(BaseModel):
    """What was written."""

    id: str
    """Id of the request."""
    object: Literal["text_completion"]
    """What this is."""
    created: int
    """Unix time."""
    model: str
    """Its name."""
    choices: list[Choice]
    """The texts."""
    usage: Usage
    """Tokens."""
    session: str | None = None
    """The session that has read and written it."""


class SessionAnswer(BaseModel):
    """A session."""

    id: str
    """To use it: keep it secret, as a key."""
    object: Literal["session"]
    """What this is."""
    model: str
    """Its model."""
    created: int
    """Unix time."""
    tokens: int
    """How many it has read and written."""
    bytes: int
    """What it remembers of them; this stays about the same, whatever it reads."""
    waiting: str
    """Text that was fed but not read yet, because what follows may change its tokens."""
    place: Literal["memory", "disk", "redis"]
    """Where it is."""
    busy: bool
    """Whether a request uses it now."""


class SessionList(BaseModel):
    """The sessions of a tenant."""

    object: Literal["list"]
    """What this is."""
    data: list[SessionAnswer]
    """The first that was created first."""
    has_more: bool
    """Whether there are more, after the last of these."""


class DeletedSession(BaseModel):
    """A session that is gone."""

    id: str
    """Its id."""
    object: Literal["session.deleted"]
    """What this is."""
    deleted: Literal[True]
    """Always."""


class TokenAnswer(BaseModel):
    """A token that was written or scored."""

    token: str
    """As the tokeniser shows it; empty for text that had been held back, at the end."""
    id: int | None
    """Its id."""
    text: str
    """The text that has become certain with it."""
    logprob: float | None
    """Natural logarithm of its probability."""
    top: list[dict[str, Any]]
    """The likeliest tokens in its place: `token` and `logprob` of each."""


class Written(BaseModel):
    """What a session wrote."""

    object: Literal["session.written"]
    """What this is."""
    text: str
    """All of it."""
    tokens: list[TokenAnswer]
    """One by one; empty in the last event of a stream, which had them."""
    finish_reason: Literal["stop", "length"]
    """Why it ended."""
    usage: Usage
    """Tokens."""
    session: SessionAnswer
    """As it is now."""


class FedAnswer(BaseModel):
    """A session has read a text."""

    object: Literal["session.fed"]
    """What this is."""
    characters: int
    """Number of characters of the text."""
    usage: Usage
    """Tokens."""
    session: SessionAnswer
    """As it is now."""


class ScoredPart(BaseModel):
    """A token of a scored text."""

    token: str
    """As the tokeniser shows it."""
    id: int
    """Its id."""
    start: int
    """Its first character;"""
    end: int
    """and the one after its last."""
    logprob: float | None
    """Natural logarithm; null where nothing was read before it."""
    top: list[dict[str, Any]]
    """The likeliest tokens in its place."""


class ScoredAnswer(BaseModel):
    """How likely a text was."""

    object: Literal["session.scored"]
    """What this is."""
    logprob: float
    """Sum of the log-probabilities of all tokens that have one."""
    perplexity: float | None
    """Perplexity per token."""
    tokens: list[ScoredPart]
    """One by one."""
    usage: Usage
    """Tokens."""
    session: SessionAnswer
    """As it is now."""
