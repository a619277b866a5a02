"""A model with its tokeniser: the starting point of everything that reads text.

In: the path or name of a model (`segue.checkpoint.find`). Out: the language model, its tokeniser and the segment length
of its training.
"""

from dataclasses import dataclass
from pathlib import Path

from segue.checkpoint.find import find, model_folder, tokenizer_folder
from segue.checkpoint.folder import CONFIG, TASK, read_toml
from segue.checkpoint.folder import load as load_folder
from segue.config import load as load_config
from segue.errors import CheckpointError
from segue.model import LanguageModel
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer

SEGMENT_LENGTH = 512
"""Segment length of a model whose folder does not name that of its training."""


@dataclass(frozen=True, kw_only=True)
class TextModel:
    """A language model with its tokeniser."""

    model: LanguageModel
    tokenizer: Tokenizer
    segment_length: int
    embeds: bool = False
    """Whether it was fine-tuned to embed texts (the task similarity)."""

    def reach(self) -> tuple[int, int | None]:
        """Return the number of earlier tokens that each token of a stream sees, and the window without memory."""
        memory, positions = self.model.config.memory, self.model.config.learned_positions
        if memory is None or positions is not None:
            window = positions or self.segment_length
            return window, window
        return memory.length, None


def load_text_model(source: str | Path) -> TextModel:
    """Load a model folder, a run folder, a checkpoint of another library, or a name on the hub."""
    folder = model_folder(find(source))
    tokenizer_place = tokenizer_folder(source, folder)
    model = load_folder(folder)
    tokenizer = load_tokenizer(tokenizer_place)
    if tokenizer.size > model.config.vocabulary.size:
        raise CheckpointError(
            f"{tokenizer_place} must have no more tokens than the model, {model.config.vocabulary.size}; got "
            f"{tokenizer.size}. It belongs to another model."
        )
    embeds = (folder / TASK).is_file() and read_toml(folder / TASK).get("task") == "similarity"
    return TextModel(model=model.eval(), tokenizer=tokenizer, segment_length=segment_length_of(folder), embeds=embeds)


def segment_length_of(folder: Path) -> int:
    """Return the segment length of a model's training; if it is unknown, as long as its positions allow."""
    if (folder / TASK).is_file():
        found = read_toml(folder / TASK).get("segment_length")
        if isinstance(found, int) and found > 0:
            return found
    config = load_config(folder / CONFIG)
    if config.data is not None:
        return config.data.segment_length
    return min(SEGMENT_LENGTH, config.model.learned_positions or SEGMENT_LENGTH)
