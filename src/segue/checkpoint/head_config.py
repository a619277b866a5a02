"""What a head is, as `head.toml` says it. The head itself is made in `heads`, which needs torch."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from segue.config.schema import Section, SmallCount
from segue.errors import CheckpointError

MOST_LABELS = 2**20


class HeadConfig(Section):
    """What stands on the trunk. Settings of other kinds than its own mean nothing."""

    kind: Literal["sequence_classifier", "token_tagger", "sequence_scorer", "simple_answerer", "beam_answerer"]
    num_labels: Annotated[int, Field(ge=1, le=MOST_LABELS)] = 2
    """Classes of a sequence_classifier, tags of a token_tagger."""
    labels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Their names, if they have any."""
    task: Literal["single", "multiple", "regression"] = "single"
    """What a sequence_classifier predicts: one class, several, or a number."""
    loss: Literal["choice", "pointwise", "pairwise"] = "choice"
    """Training loss of a sequence_scorer."""
    summary: Literal["first", "last", "mean", "attention"] = "last"
    """How a sequence_classifier or a sequence_scorer makes one vector of a sequence."""
    projected: bool = True
    """Whether a dense layer with tanh follows it."""
    pool: Literal["last", "mean", "max", "attention"] = "last"
    """How they make one vector of the segments of a long document."""
    num_starts: SmallCount = 5
    """Beam width of a beam_answerer: starts of an answer that are kept."""
    num_ends: SmallCount = 5
    """Ends of an answer that a beam_answerer keeps for each start."""


def head_config(values: dict[str, Any]) -> HeadConfig:
    """From plain values, as in `head.toml`."""
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
