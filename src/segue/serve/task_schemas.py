"""Schemas of requests to fine-tuned models, and of requests to language models other than generation."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from segue.serve.schemas import Body, Sampling, Token

Row = str | list[str] | dict[str, Any]
"""A text; two texts, for tasks with text pairs; or the columns of a task by their names."""
Text = str


class TaskRequest(Body):
    """Rows for a fine-tuned model."""

    model: str | None = None
    """Name of the model. Default: the only one for this task."""
    input: Row | list[Row]
    """A row or a list of rows. A row is a text; a list of two texts, for tasks with text pairs; or an object with the
    columns of the task, as in a table for `segue predict`: `{"question": "...", "context": "..."}`."""


class ExplainRequest(Body):
    """A text to explain."""

    model: str | None = None
    """Name of a language model or a fine-tuned model. Default: the only one."""
    input: Row
    """A text. For a fine-tuned model, a row of its task."""
    order: Literal["forward", "backward", "random"] = "forward"
    """Factorisation order, for language models with the permutation objective."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed for random orders and rankings."""
    ablations: bool = False
    """Run a language model again without each term, each head and the memory, to show how much the loss increases."""


class TaskUsage(BaseModel):
    """Token counts of a request."""

    prompt_tokens: int
    """Number of tokens read."""
    total_tokens: int
    """The same number."""


class TaskAnswer(BaseModel):
    """A prediction for each row."""

    object: Literal["list"]
    """Type of the response."""
    model: str
    """Name of the model."""
    data: list[dict[str, Any]]
    """For each row: `index`, `object`, and the columns that `segue predict` writes. For a classifier, also `label`,
    `probs` in the order of the model's `labels`, and `num_classes`."""
    usage: TaskUsage
    """Token counts."""


class EmbeddingRequest(Body):
    """Texts to embed."""

    model: str | None = None
    """Name of a language model. Default: the only one."""
    input: str | list[str] | list[Token] | list[list[Token]]
    """A text or several, or their token ids."""
    encoding_format: Literal["float", "base64"] | None = None
    """base64: the bytes of float32 numbers, little-endian. Default: float."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Must be the width of the model, or left out."""
    pool: Literal["mean", "last", "first", "max", "cls"] | None = None
    """Pooling of the hidden states into one vector. Default: mean."""
    layer: int | None = None
    """Layer of the hidden states: 0 are the token embeddings; negative numbers count from the end. Default: the
    last."""
    normalise: bool = True
    """Normalise vectors to unit length."""
    user: str | None = None
    """Has no effect."""


class RerankRequest(Body):
    """Documents to sort by their relevance to a query."""

    model: str | None = None
    """Name of a model for the task rank. Default: the only one."""
    query: str
    """The query."""
    documents: list[str | dict[str, str]]
    """Texts, or objects with a `text`."""
    top_n: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of results. Default: all."""
    return_documents: bool = True
    """Return the documents with the results."""


class PairScoreRequest(Body):
    """Pairs of texts to score."""

    model: str | None = None
    """Name of a model for the task rank, or for regress with text pairs. Default: the only one."""
    queries: str | list[str] | None = None
    """A text, or one for each document."""
    documents: str | list[str] | None = None
    """A text or several."""
    text_1: str | list[str] | None = None
    """Another name for queries."""
    text_2: str | list[str] | None = None
    """Another name for documents."""


class LikelihoodRequest(Body):
    """Texts whose likelihood a language model computes."""

    model: str | None = None
    """Name of a language model. Default: the only one."""
    input: str | list[str]
    """A text or several, each a document."""
    order: Literal["forward", "backward", "random"] | list[Annotated[int, Field(ge=0)]] = "forward"
    """For permutation models: the order in which the tokens of a segment are predicted; or a list of the positions of
    the tokens of a text, from 0, in that order."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Seed for random orders."""
    tokens: bool = False
    """Return each token with its log-probability."""


class InfillRequest(Sampling):
    """A text with gaps that an XLNet fills."""

    model: str | None = None
    """Name of a permutation model. Default: the only one."""
    text: str
    """Text with a mark at each gap."""
    gap: Annotated[str, Field(min_length=1, max_length=40)] = "___"
    """The mark."""
    length: Annotated[int, Field(ge=1, le=1000)] | list[Annotated[int, Field(ge=1, le=1000)]] = 3
    """Number of tokens in each gap: one number for all, or one for each."""
    order: Literal["left_to_right", "right_to_left", "random", "surest_first"] = "left_to_right"
    """Order in which the positions are filled."""
    logprobs: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Number of most likely tokens to return with each position. Default: 0."""


class TokenizeRequest(Body):
    """A text to encode as ids."""

    model: str | None = None
    """Name of the model whose tokeniser is used. Default: the only model."""
    prompt: str
    """The text."""
    add_special_tokens: bool = False
    """Must be false: text never becomes special tokens."""


class DetokenizeRequest(Body):
    """Ids to decode as text."""

    model: str | None = None
    """Name of the model whose tokeniser is used. Default: the only model."""
    tokens: list[Token]
    """The ids."""
