"""Models with a head on disk: a model folder with one more file, `head.toml`, that says what the head is.

In: a head of `model.heads` or `model.answers` with its HeadConfig and a path, or a path. Out: a folder, or the two.
"""

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import torch
from pydantic import Field, ValidationError
from torch import nn

from segue.checkpoint.files import locate, read_small, verify, write_folder
from segue.checkpoint.folder import CONFIG, HEAD, LARGEST_CONFIG, TOKENIZER, WEIGHTS, read_tensors, write_tensors
from segue.checkpoint.header import read_header
from segue.config import Config, ModelConfig, dump, parse
from segue.config.schema import PositiveInt, Section
from segue.errors import CheckpointError
from segue.model import LanguageModel, Trunk
from segue.model.answers import BeamAnswerer, SimpleAnswerer
from segue.model.heads import SequenceClassifier, SequenceScorer, TokenTagger


class HeadConfig(Section):
    """What stands on the trunk. Settings of other kinds than its own mean nothing."""

    kind: Literal["sequence_classifier", "token_tagger", "sequence_scorer", "simple_answerer", "beam_answerer"]
    num_labels: PositiveInt = 2
    """Classes of a sequence_classifier, tags of a token_tagger."""
    labels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Their names, if they have any."""
    task: Literal["single", "multiple", "regression"] = "single"
    """Of a sequence_classifier."""
    loss: Literal["choice", "pointwise", "pairwise"] = "choice"
    """Of a sequence_scorer."""
    summary: Literal["first", "last", "mean", "attention"] = "last"
    """How a sequence_classifier or a sequence_scorer makes one vector of a sequence."""
    projected: bool = True
    """Whether a dense layer with tanh follows it."""
    num_starts: PositiveInt = 5
    """Of a beam_answerer."""
    num_ends: PositiveInt = 5
    """Of a beam_answerer, for each start."""


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


def build(config: ModelConfig, head: HeadConfig | None) -> nn.Module:
    """The model with new weights; without a head, a language model."""
    if head is None:
        return LanguageModel(config)
    match head.kind:
        case "sequence_classifier":
            return SequenceClassifier(
                config, num_labels=head.num_labels, task=head.task, summary=head.summary, projected=head.projected
            )
        case "token_tagger":
            return TokenTagger(config, num_tags=head.num_labels)
        case "sequence_scorer":
            return SequenceScorer(config, loss=head.loss, summary=head.summary, projected=head.projected)
        case "simple_answerer":
            return SimpleAnswerer(config)
        case "beam_answerer":
            return BeamAnswerer(config, num_starts=head.num_starts, num_ends=head.num_ends)


def save_head(
    model: nn.Module,
    head: HeadConfig,
    folder: str | Path,
    *,
    tokenizer: Path | None = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Writes the folder whole or not at all, as `folder.save` does for language models."""
    target = Path(folder)
    if target.exists() and not (target / HEAD).exists():
        raise CheckpointError(
            f"{target} must be the folder of a model with a head or not exist; got something else. "
            "Choose another place."
        )

    def write(new: Path) -> None:
        (new / CONFIG).write_text(dump(Config(model=model_config_of(model))), encoding="utf-8")
        (new / HEAD).write_text(tomli_w.dumps(head.model_dump(mode="json")), encoding="utf-8")
        write_tensors(dict(model.state_dict()), new / WEIGHTS)
        if tokenizer is not None:
            shutil.copytree(tokenizer, new / TOKENIZER)
        if also is not None:
            also(new)

    write_folder(target, write)


def load_head(folder: str | Path, *, check: bool = True) -> tuple[nn.Module, HeadConfig]:
    """The model with its head as it was saved, in the same dtype, and what it is."""
    path = locate(Path(folder))
    config, head = read_head(path)
    with torch.device("meta"):
        model = build(config, head)
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: info.shape for name, info in read_header(path / WEIGHTS).tensors.items()}
    if expected != found:
        wrong = sorted(name for name in expected | found if expected.get(name) != found.get(name))
        raise CheckpointError(
            f"{path / WEIGHTS} must hold the tensors of its config and head; got {len(wrong)} that do not fit, first "
            f"{wrong[0]}: config {expected.get(wrong[0])}, file {found.get(wrong[0])}. They belong to other weights."
        )
    if check:
        verify(path, [CONFIG, HEAD, WEIGHTS])
    model.load_state_dict(read_tensors(path / WEIGHTS), assign=True)
    return model, head


def read_head(path: Path) -> tuple[ModelConfig, HeadConfig]:
    """The config and the head of a folder, without reading weights."""
    values = {}
    for name in (CONFIG, HEAD):
        data = read_small(path / name, limit=LARGEST_CONFIG)
        try:
            values[name] = tomllib.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path / name} must be TOML; got {error}. Use another copy.") from None
    return parse(values[CONFIG]).model, head_config(values[HEAD])


def model_config_of(model: nn.Module) -> ModelConfig:
    """The config that a model of any kind was built from."""
    trunk = model.get_submodule("trunk")
    assert isinstance(trunk, Trunk)
    return trunk.config
