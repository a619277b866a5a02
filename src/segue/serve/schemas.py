"""Schemas of requests for generation and sessions, and of their responses. Unknown fields are errors, values are not
converted.

The names are those of OpenAI's API where it has them; it lacks `session`, `top_k`, `min_p`, `typical`,
`repetition_penalty` and `choices`. The routes check the limits that can be set when the server is started.
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
    """Sampling settings."""

    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    """0 is greedy decoding; below 1, likely tokens become more likely. Default: 1."""
    top_p: Share | None = None
    """Nucleus sampling: keep the most likely tokens whose probabilities sum to this. Default: 1, all."""
    top_k: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Keep only this many of the most likely tokens. Default: all."""
    min_p: Share | None = None
    """Keep only tokens with at least this share of the probability of the most likely token. Default: all."""
    typical: Share | None = None
    """Locally typical sampling: keep the most typical tokens whose probabilities sum to this. Default: all."""
    repetition_penalty: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = None
    """Above 1, recent tokens become less likely. Default: 1."""
    logit_bias: dict[str, Number] | None = None
    """Token ids, as strings, and the values added to their logits; -100 or less forbids a token."""
    seed: Annotated[int, Field(ge=-(2**63), le=2**64 - 1)] | None = None
    """Random seed; the same seed gives the same text. Default: a new one for each request."""


class Writing(Sampling):
    """Generation settings."""

    max_tokens: Whole | None = None
    """Maximum number of tokens to generate. Default: 16."""
    stop: str | list[str] | None = None
    """Stop string or strings, which end the text and are not part of it."""
    choices: list[str] | None = None
    """Allowed texts: exactly one of them is generated."""
    stream: bool | None = None
    """Stream the text as server-sent events while it is generated."""


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = None
    """Send the usage in a last chunk."""
    include_obfuscation: bool | None = None
    """Has no effect: nothing is padded here."""


class CompletionRequest(Writing):
    """A request to generate text from a prompt."""

    model: str
    """Name of a model that can generate."""
    prompt: str | list[str] | list[Token] | list[list[Token]] = ""
    """A text or its token ids, or a list of these. Ids are read as they are; a text begins a document."""
    session: str | None = None
    """Session that reads the prompt and the generated text. Default: none, nothing is kept."""
    n: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Number of texts for each prompt. Default: 1."""
    best_of: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Must equal `n`, or be left out."""
    echo: bool | None = None
    """Return the prompt before the text, with its log-probabilities if `logprobs` is given."""
    logprobs: Whole | None = None
    """Number of most likely tokens to return with each token and its log-probability. Default: no log-probabilities."""
    stream_options: StreamOptions | None = None
    """Options of a stream."""
    presence_penalty: float | None = None
    """Not supported: 0 or null. Use `repetition_penalty`."""
    frequency_penalty: float | None = None
    """Not supported: 0 or null. Use `repetition_penalty`."""
    suffix: str | None = None
    """Not supported: null. Use /v1/infill to fill gaps."""
    user: str | None = None
    """Has no effect."""


class SessionRequest(Body):
    """A request to create a session."""

    model: str | None = None
    """Name of a model that can generate. Default: the only one on the server."""


class WriteRequest(Writing):
    """A request to a session to read a prompt and generate text."""

    prompt: str = ""
    """Text that the session reads first."""
    logprobs: Whole | None = None
    """Number of most likely tokens to return with each token. Default: 0."""


class ScoreRequest(Body):
    """A request to a session to read a text and return the probability of each token."""

    text: str
    """Text to score."""
    logprobs: Whole | None = None
    """Number of most likely tokens to return with each token. Default: 0."""
    keep: bool = True
    """Continue the session from the end of the text; otherwise it stays where it was."""


# ---------------------------------------------------------------------------------------------------------- responses


class Problem(BaseModel):
    """Description of an error."""

    message: str
    """The thing, the rule, the value and the remedy."""
    type: str
    """Kind of error, by its status."""
    param: str | None
    """Field of the request."""
    code: str
    """Code of the error, for programs."""


class ErrorAnswer(BaseModel):
    """An error response."""

    error: Problem
    """Description of the error."""


class PromptDetails(BaseModel):
    """How the prompt tokens were handled."""

    cached_tokens: int
    """Tokens that the session had read before."""
    read_tokens: int
    """Tokens read in this request."""
    skipped_tokens: int
    """Tokens that the model did not have to read, because no later token can attend to them."""


class Usage(BaseModel):
    """Token counts of a request."""

    prompt_tokens: int
    """Tokens before the generated text: those that the session had read, and those of this request."""
    completion_tokens: int
    """Generated tokens."""
    total_tokens: int
    """Sum of prompt and completion tokens."""
    prompt_tokens_details: PromptDetails
    """How the prompt tokens were handled."""


class LogProbabilities(BaseModel):
    """Log-probabilities of tokens, as natural logarithms."""

    tokens: list[str]
    """Tokens as the tokeniser shows them."""
    token_logprobs: list[float | None]
    """Log-probability of each token; null if nothing comes before it."""
    top_logprobs: list[dict[str, float] | None]
    """Most likely tokens at each position, with their log-probabilities."""
    text_offset: list[int]
    """Offset of each token in the text, in characters."""


class Choice(BaseModel):
    """A generated text."""

    index: int
    """Index of the text."""
    text: str
    """The generated text."""
    logprobs: LogProbabilities | None
    """Log-probabilities, if they were requested."""
    finish_reason: Literal["stop", "length"] | None
    """`stop`: the text ended by itself or at a stop string. `length`: after max_tokens. Null: it continues."""


class Completion(BaseModel):
    """The response to a completion request."""

    id: str
    """Id of the request."""
    object: Literal["text_completion"]
    """Type of the response."""
    created: int
    """Creation time, as a Unix timestamp."""
    model: str
    """Name of the model."""
    choices: list[Choice]
    """Generated texts."""
    usage: Usage
    """Token counts."""
    session: str | None = None
    """Session that read the prompt and the text."""


class SessionAnswer(BaseModel):
    """A session."""

    id: str
    """Id for further requests; keep it secret, as a key."""
    object: Literal["session"]
    """Type of the response."""
    model: str
    """Name of the model."""
    created: int
    """Creation time, as a Unix timestamp."""
    tokens: int
    """Number of tokens read and generated."""
    bytes: int
    """Size of the state in bytes; it stays about the same however much the session reads."""
    waiting: str
    """Text that was fed but not read yet, because further text may change its tokens."""
    place: Literal["memory", "disk", "redis"]
    """Where the state is."""
    busy: bool
    """True if a request is using the session."""


class SessionList(BaseModel):
    """The sessions of a tenant."""

    object: Literal["list"]
    """Type of the response."""
    data: list[SessionAnswer]
    """Sessions, the oldest first."""
    has_more: bool
    """True if there are more, after the last of these."""


class DeletedSession(BaseModel):
    """A deleted session."""

    id: str
    """Id of the session."""
    object: Literal["session.deleted"]
    """Type of the response."""
    deleted: Literal[True]
    """Always true."""


class TokenAnswer(BaseModel):
    """A generated token."""

    token: str
    """Token as the tokeniser shows it; empty for text that had been held back, at the end."""
    id: int | None
    """Id of the token."""
    text: str
    """Text that became final with this token."""
    logprob: float | None
    """Natural logarithm of its probability."""
    top: list[dict[str, Any]]
    """Most likely tokens at its position, each with `token` and `logprob`."""


class Written(BaseModel):
    """Text generated by a session."""

    object: Literal["session.written"]
    """Type of the response."""
    text: str
    """The whole text."""
    tokens: list[TokenAnswer]
    """Tokens of the text; empty in the last event of a stream, which has already sent them."""
    finish_reason: Literal["stop", "length"]
    """Why generation ended."""
    usage: Usage
    """Token counts."""
    session: SessionAnswer
    """The session after the request."""


class FedAnswer(BaseModel):
    """The response to a text fed to a session."""

    object: Literal["session.fed"]
    """Type of the response."""
    characters: int
    """Number of characters in the text."""
    usage: Usage
    """Token counts."""
    session: SessionAnswer
    """The session after the request."""


class ScoredPart(BaseModel):
    """A token of a scored text."""

    token: str
    """Token as the tokeniser shows it."""
    id: int
    """Id of the token."""
    start: int
    """Index of its first character."""
    end: int
    """Index after its last character."""
    logprob: float | None
    """Natural logarithm of its probability; null if nothing was read before it."""
    top: list[dict[str, Any]]
    """Most likely tokens at its position."""


class ScoredAnswer(BaseModel):
    """Likelihood of a text."""

    object: Literal["session.scored"]
    """Type of the response."""
    logprob: float
    """Sum of the log-probabilities of all tokens that have one."""
    perplexity: float | None
    """Perplexity per token."""
    tokens: list[ScoredPart]
    """Tokens of the text."""
    usage: Usage
    """Token counts."""
    session: SessionAnswer
    """The session after the request."""
