"""Models with a head on disk: a model folder with one more file, `head.toml`, that describes the head.

In: a head of `model.heads` or `model.answers` with its HeadConfig and a path, or a path. Out: a folder, or the model
and its HeadConfig.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import tomli_w
from torch import nn

from segue.checkpoint.card import Facts, make_card
from segue.checkpoint.files import CARD, inside, locate, verify
from segue.checkpoint.folder import (
    CONFIG,
    HEAD,
    TOKENIZER,
    WEIGHTS,
    examined,
    fill,
    parameters_of,
    read_toml,
    replace_model,
    write_tensors,
)
from segue.checkpoint.head_config import MOST_LABELS as MOST_LABELS
from segue.checkpoint.head_config import HeadConfig as HeadConfig
from segue.checkpoint.head_config import head_config as head_config
from segue.checkpoint.source import readable
from segue.config import Config, ModelConfig, dump
from segue.errors import CheckpointError
from segue.model import LanguageModel, Trunk
from segue.model.answers import BeamAnswerer, SimpleAnswerer
from segue.model.heads import SequenceClassifier, SequenceScorer, TokenTagger


def build(config: ModelConfig, head: HeadConfig | None) -> nn.Module:
    """Build the model with new weights; without a head, a language model."""
    if head is None:
        return LanguageModel(config)
    match head.kind:
        case "sequence_classifier":
            return SequenceClassifier(
                config,
                num_labels=head.num_labels,
                task=head.task,
                summary=head.summary,
                projected=head.projected,
                pool=head.pool,
            )
        case "token_tagger":
            return TokenTagger(config, num_tags=head.num_labels)
        case "sequence_scorer":
            return SequenceScorer(
                config, loss=head.loss, summary=head.summary, projected=head.projected, pool=head.pool
            )
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
    facts: Facts | None = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Save the model atomically, as `folder.save` does for language models."""

    def write(new: Path) -> None:
        write_model_with_head(model, head, new, tokenizer=tokenizer, facts=facts)
        if also is not None:
            also(new)

    replace_model(Path(folder), write)


def write_model_with_head(
    model: nn.Module, head: HeadConfig, new: Path, *, tokenizer: Path | None = None, facts: Facts | None = None
) -> None:
    """Write the files of a model folder with a head into an empty one."""
    config = model_config_of(model)
    (new / CONFIG).write_text(dump(Config(model=config)), encoding="utf-8")
    (new / HEAD).write_text(tomli_w.dumps(head.model_dump(mode="json")), encoding="utf-8")
    write_tensors(dict(model.state_dict()), new / WEIGHTS)
    if tokenizer is not None:
        shutil.copytree(tokenizer, new / TOKENIZER)
    card = make_card(config, parameters_of(model), facts or Facts(), head=on_card(head))
    (new / CARD).write_text(card, encoding="utf-8")


def load_head(folder: str | Path, *, check: bool = True, as_stored: bool = False) -> tuple[nn.Module, HeadConfig]:
    """Load a saved model with its head, and the head's settings. Weights of 16 bits are converted to float32, with the
    same values, unless `as_stored`. `check` compares the files with their hashes. Weights that are not finite give a
    SegueWarning."""
    with readable(Path(folder)):
        path = locate(Path(folder))
        model, head = _examined(path)
        if check:
            verify(path, [CONFIG, HEAD, WEIGHTS])
        fill(model, path, as_stored=as_stored)
    return model, head


def read_head(folder: str | Path) -> tuple[ModelConfig, HeadConfig, int]:
    """Return the config, the head and the number of parameters of a folder, without reading weights. Performs the
    checks of `load_head` except for the hashes."""
    with readable(Path(folder)):
        model, head = _examined(locate(Path(folder)))
    return model_config_of(model), head, parameters_of(model)


def _examined(path: Path) -> tuple[nn.Module, HeadConfig]:
    """Return the model without its weights, and its head."""
    if not inside(path, path / HEAD):
        raise CheckpointError(f"{path / HEAD} must be in its folder; it links to a place outside. Copy it there.")
    head = head_config(read_toml(path / HEAD))
    return examined(path, lambda config: build(config, head)), head


def on_card(head: HeadConfig) -> dict[str, str]:
    """Return the entries of a card for a head: its kind, and the settings that apply to it."""
    values = head.model_dump(exclude_defaults=True) | {"kind": head.kind.replace("_", " ")}
    if head.kind in ("sequence_classifier", "token_tagger"):
        values["num_labels"] = head.num_labels
    return {
        name.removeprefix("num_"): ", ".join(value) if isinstance(value, tuple | list) else str(value)
        for name, value in values.items()
        if not (name == "num_labels" and head.labels)
    }


def model_config_of(model: nn.Module) -> ModelConfig:
    """Return the config that a model of any kind was built from."""
    trunk = model.get_submodule("trunk")
    assert isinstance(trunk, Trunk)
    return trunk.config
