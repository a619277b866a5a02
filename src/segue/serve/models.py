"""The served models: language models, and models fine-tuned for a task.

In: a model on the command line, `PATH` or `NAME=PATH`. Out: a Served, by its name. All models compute in float32.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from segue.checkpoint.card import licence_and_languages
from segue.checkpoint.files import CARD, LARGEST_CARD, read_small
from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import HEAD, TASK
from segue.errors import ConfigError
from segue.explain.decision import TASKS as EXPLAINED
from segue.infer.export import DESCRIPTION
from segue.infer.generation import Generation, make_generation
from segue.infer.sampling import SamplingSettings
from segue.infer.text_model import TextModel, load_text_model
from segue.model import LanguageModel
from segue.model.streaming import Streamer
from segue.serve.errors import ApiError, shown
from segue.tasks.folder import TaskModel, load_task_model
from segue.tasks.similarity import SIMILARITY
from segue.text.tokenizer import Tokenizer

LONGEST_NAME = 128


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Streaming state of a language model that all its sessions share."""

    streamer: Streamer
    window: int | None
    fingerprints: dict[str, str]
    """Fingerprints of the model and of the tokeniser, which a saved session must match."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model with a name."""

    name: str
    tokenizer: Tokenizer
    parameters: int
    languages: tuple[str, ...] = ()
    """Language tags of its model card, or the one that its name ends with. Empty: unknown."""
    text: TextModel | None = None
    """The language model, if it is one; of a model for the task similarity, what embeds texts."""
    task: TaskModel | None = None
    """The fine-tuned model, if it is one."""
    stream: Stream | None = None
    """The streaming state, if the model can generate."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def abilities(self) -> tuple[str, ...]:
        """Names of the routes that accept the model."""
        if self.task is not None:
            explained = ("explain",) if self.task.kind.name in EXPLAINED else ()
            embeds = ("embeddings",) if self.text is not None else ()
            return (self.task.kind.name, *embeds, *explained, "tokenize")
        assert self.text is not None
        config = self.text.model.config
        return (
            *(("completions", "sessions") if self.stream is not None else ()),
            "embeddings",
            "likelihood",
            *(("infill",) if config.objective == "permutation" else ()),
            "explain",
            "tokenize",
        )

    @property
    def vocabulary_size(self) -> int:
        """Vocabulary size of the model; the tokeniser may have fewer ids."""
        config = self.task.config if self.task is not None else self.text.model.config if self.text else None
        assert config is not None
        return config.vocabulary.size

    def streaming(self) -> Stream:
        """Return the streaming state; raise ApiError if the model cannot generate."""
        if self.stream is None:
            raise ApiError(
                400,
                f"model must be one that writes; got {shown(self.name)}, which can do {', '.join(self.abilities)}. Use "
                "a Transformer-XL, GPT or XLNet.",
                code="unsupported",
                param="model",
            )
        return self.stream

    def generation(
        self, *, max_tokens: int, sampling: SamplingSettings, stop: Sequence[str] = (), choices: Sequence[str] = ()
    ) -> Generation:
        """Return a new generation, for one text."""
        return make_generation(
            self.tokenizer,
            vocabulary_size=self.vocabulary_size,
            max_tokens=max_tokens,
            sampling=sampling,
            stop=stop,
            choices=choices,
        )


def load_served(source: str, *, slice_tokens: int) -> Served:
    """Load the model that `PATH` or `NAME=PATH` names."""
    name, path = _named(source)
    if (Path(path) / DESCRIPTION).is_file():
        raise ConfigError(
            f"a model to serve must have its weights; got {path}, a program that segue export wrote for others to run. "
            "Instead, serve the model that it was made of."
        )
    if _is_task(path):
        made = load_task_model(path)
        made.model.float().eval()
        text = None
        if made.kind is SIMILARITY:
            assert isinstance(made.model, LanguageModel)
            text = TextModel(model=made.model, tokenizer=made.tokenizer, segment_length=made.segment_length)
        return Served(
            name=name,
            text=text,
            task=made,
            tokenizer=made.tokenizer,
            parameters=_size(made.model),
            languages=_languages(path),
        )
    text = load_text_model(path)
    text.model.float()
    stream = None
    config = text.model.config
    count_from = getattr(config.positions, "count_from", "start")
    if config.objective != "masked" and config.directions == "forward" and count_from == "start":
        memory_length, window = text.reach()
        streamer = Streamer(text.model, memory_length=memory_length, most_at_once=slice_tokens)
        fingerprints = {"model": streamer.fingerprint(), "tokenizer": text.tokenizer.fingerprint()}
        stream = Stream(streamer=streamer, window=window, fingerprints=fingerprints)
    return Served(
        name=name,
        text=text,
        tokenizer=text.tokenizer,
        stream=stream,
        parameters=_size(text.model),
        languages=_languages(path),
    )


def load_all(sources: Sequence[str], *, slice_tokens: int) -> dict[str, Served]:
    """Load models by name; raise ConfigError if two have the same name."""
    found: dict[str, Served] = {}
    for source in sources:
        name, _ = _named(source)
        if name in found:
            raise ConfigError(
                f"models must have different names; got {name!r} twice. Name one of them: {name}-2={source}."
            )
        found[name] = load_served(source, slice_tokens=slice_tokens)
    return found


def _named(source: str) -> tuple[str, str]:
    name, equals, path = source.partition("=")
    if equals and name and "/" not in name:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise ConfigError(
                f"the name of a model must be printable, of at most {LONGEST_NAME} characters; got {name[:40]!r}. Use "
                "a shorter one."
            )
        return name, path
    parts = [part for part in Path(source).absolute().parts if part not in ("best", "last")]
    return (parts[-1] if parts else source)[:LONGEST_NAME], source


def _is_task(path: str) -> bool:
    folder = model_folder(find(path))
    return (folder / TASK).is_file() or (folder / HEAD).is_file()


def _languages(path: str) -> tuple[str, ...]:
    card = model_folder(find(path)) / CARD
    if card.is_file():
        _, named = licence_and_languages(read_small(card, limit=LARGEST_CARD).decode("utf-8", "replace"))
        if named:
            return tuple(named)
    ending = Path(path).name.rpartition("-")[2]
    return (ending,) if ending in ("en", "zh") else ()


def _size(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
