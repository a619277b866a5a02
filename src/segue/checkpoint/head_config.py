"""Settings of a head, as in `head.toml`. The head itself is built in `heads`, which needs torch."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from segue.config.schema import Section, SmallCount
from segue.errors import CheckpointError

MOST_LABELS = 2**20


class HeadConfig(Section):
    """Settings of a head. Those of other kinds than its own are ignored."""

    kind: Literal["sequence_classifier", "token_tagger", "sequence_scorer", "simple_answerer", "beam_answerer"]
    num_labels: Annotated[int, Field(ge=1, le=MOST_LABELS)] = 2
    """Number of classes of a sequence_classifier, or of tags of a token_tagger."""
    labels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of the classes or tags, if they have any."""
    task: Literal["single", "multiple", "regression"] = "single"
    """Prediction of a sequence_classifier: one class, several classes, or a number."""
    loss: Literal["choice", "pointwise", "pairwise"] = "choice"
    """Training loss of a sequence_scorer."""
    summary: Literal["first", "last", "mean", "attention"] = "last"
    """Reduction of a sequence to one vector in a sequence_classifier or a sequence_scorer."""
    projected: bool = True
    """Whether a dense layer with tanh follows the summary."""
    pool: Literal["last", "mean", "max", "attention"] = "last"
    """Pooling of the segments of a long document into one vector."""
    num_starts: SmallCount = 5
    """Beam width of a beam_answerer: starts of an answer that are kept."""
    num_ends: SmallCount = 5
    """Ends of an answer that a beam_answerer keeps for each start."""


def head_config(values: dict[str, Any]) -> HeadConfig:
    """Return a HeadConfig from plain values, as in `head.toml`."""
    try:
        head = HeadConfig.model_validate(values)
    except ValidationError as error:
        found = "; ".join(
            f"head.{'.'.join(map(str, e['loc']))}: {e['msg']}, got {e['input']!r}" for e in error.errors()
        )
        raise CheckpointError(f"a head must have the settings of HeadConfig; got {found}. Correct them.") from None
    if head.labels and len(head.labels) != head.num_labels:
        raise CheckpointError(
            f"head.labels must name all of head.num_labels classes; got {len(head.labels)} and {head.num_labels}. "
            "Correct one of them."
        )
    return head
