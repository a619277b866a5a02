"""A model with the tokeniser that belongs to it: what everything here that reads text starts from.

In: whatever names a model (`segue.checkpoint.hub`). Out: the language model, its tokeniser and the length of the
segments it was trained on.
"""

from dataclasses import dataclass
from pathlib import Path

from segue.checkpoint.folder import CONFIG, TOKENIZER
from segue.checkpoint.folder import load as load_folder
from segue.checkpoint.hub import find, model_folder
from segue.config import load as load_config
from segue.errors import CheckpointError
from segue.model import LanguageModel
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer

SEGMENT_LENGTH = 512
"""Where the model does not say on what it was trained."""


@dataclass(frozen=True, kw_only=True)
class TextModel:
    """A language model that reads text."""

    model: LanguageModel
    tokenizer: Tokenizer
    segment_length: int


def load_text_model(source: str | Path) -> TextModel:
    """From a model folder, a run folder, a checkpoint of another library, or a name on the hub."""
    folder = model_folder(find(source))
    if not (folder / TOKENIZER).is_dir():
        raise CheckpointError(
            f"{folder} must have its tokeniser in {TOKENIZER}/ to read text; got none. Save the model with it, or copy "
            "the tokeniser of its store there."
        )
    model = load_folder(folder)
    tokenizer = load_tokenizer(folder / TOKENIZER)
    if tokenizer.size > model.config.vocabulary.size:
        raise CheckpointError(
            f"{folder / TOKENIZER} must have no more tokens than the model, {model.config.vocabulary.size}; got "
            f"{tokenizer.size}. It belongs to another model."
        )
    data = load_config(folder / CONFIG).data
    return TextModel(
        model=model.eval(), tokenizer=tokenizer, segment_length=SEGMENT_LENGTH if data is None else data.segment_length
    )
