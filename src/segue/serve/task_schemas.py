"""What requests to fine-tuned models, and to language models that do not write, look like."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from segue.serve.schemas import Body, Sampling, Token

Row = str | list[str] | dict[str, Any]
"""A text; two texts, for tasks of pairs; or the columns of a task by their names."""
Text = str


class TaskRequest(Body):
    """Rows for a fine-tuned model."""

    model: str | None = None
    """Its name. Default: the only one for this task."""
    input: Row | list[Row]
    """A row or a list of rows. A row is a text; a list of two texts, for tasks of pairs; or an object with the columns
    of the task, as a table for `segue predict` has them: `{"question": "...", "context": "..."}`."""


class ExplainRequest(Body):
    """A text to explain."""

    model: str | None = None
    """A language model, or one that was fine-tuned. Default: the only one."""
    input: Row
    """A text. For a fine-tuned model, a row as its task has it."""
    order: Literal["forward", "backward", "random"] = "forward"
    """The order of factorisation, for language models of objective permutation."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed for random orders and rankings."""
    ablations: bool = False
    """Whether a language model reads the text again without each term, head and the memory, to show what is lost."""


class TaskUsage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    """That were read."""
    total_tokens: int
    """The same."""


class TaskAnswer(BaseModel):
    """A prediction for each row."""

    object: Literal["list"]
    """What this is."""
    model: str
    """Its name."""
    data: list[dict[str, Any]]
    """For each row: `index`, `object`, and the columns that `segue predict` writes. Of a class, also `label`, `probs`
    in the order of `labels` of the model, and `num_classes`."""
    usage: TaskUsage
    """Tokens."""


class EmbeddingRequest(Body):
    """Embedding of texts as vectors."""

    model: str | None = None
    """A language model. Default: the only one."""
    input: str | list[str] | list[Token] | list[list[Token]]
    """A text or several, or their ids."""
    encoding_format: Literal["float", "base64"] | None = None
    """base64: the bytes of float32 numbers, the lowest byte first. Default: float."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Must be the width of the model, or left out."""
    pool: Literal["mean", "last", "first", "max", "cls"] | None = None
    """How the states of the tokens become one vector. Default: mean."""
    layer: int | None = None
    """0 are the embeddings of tokens; negative ones count from the end. Default: the last."""
    normalise: bool = True
    """Whether to normalise vectors to unit length."""
    user: str | None = None
    """Without effect."""


class RerankRequest(Body):
    """Documents to sort by a query."""

    model: str | None = None
    """A model of the task rank. Default: the only one."""
    query: str
    """What is looked for."""
    documents: list[str | dict[str, str]]
    """Texts, or objects with a `text`."""
    top_n: Annotated[int, Field(ge=1)] | None = None
    """Only so many of the best. Default: all."""
    return_documents: bool = True
    """Whether results have their documents."""


class PairScoreRequest(Body):
    """How well texts go together."""

    model: str | None = None
    """A model of the task rank, or of regress with two texts. Default: the only one."""
    queries: str | list[str] | None = None
    """A text, or one for each document."""
    documents: str | list[str] | None = None
    """A text or several."""
    text_1: str | list[str] | None = None
    """Another name of queries."""
    text_2: str | list[str] | None = None
    """Another name of documents."""


class LikelihoodRequest(Body):
    """How likely a language model finds texts."""

    model: str | None = None
    """A language model. Default: the only one."""
    input: str | list[str]
    """A text or several, each a document."""
    order: Literal["forward", "backward", "random"] | list[Annotated[int, Field(ge=0)]] = "forward"
    """For permutation models: the order in which the tokens of a segment are predicted; or the places of the tokens of
    a text, from 0, in that order."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Seed for random orders."""
    tokens: bool = False
    """Whether each token comes with its log-probability."""


class InfillRequest(Sampling):
    """Gaps in a text, filled by an XLNet."""

    model: str | None = None
    """A permutation model. Default: the only one."""
    text: str
    """With a mark at each gap."""
    gap: Annotated[str, Field(min_length=1, max_length=40)] = "___"
    """The mark."""
    length: Annotated[int, Field(ge=1, le=1000)] | list[Annotated[int, Field(ge=1, le=1000)]] = 3
    """Tokens of each gap, one number for all or one for each."""
    order: Literal["left_to_right", "right_to_left", "random", "surest_first"] = "left_to_right"
    """In which order the places are filled."""
    logprobs: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Number of likeliest tokens to return with each place. Default: 0."""


class TokenizeRequest(Body):
    """A text to ids."""

    model: str | None = None
    """Whose tokeniser. Default: that of the only model."""
    prompt: str
    """The text."""
    add_special_tokens: bool = False
    """Must be false: special tokens are never made of text."""


class DetokenizeRequest(Body):
    """Ids to a text."""

    model: str | None = None
    """Whose tokeniser. Default: that of the only model."""
    tokens: list[Token]
    """The ids."""
