"""A reply in a model's own words, from the answers that the desk found: only where the operator names a model for it.

In: a question, and the answers of the likeliest topics. Out: a text, or None where the model writes nothing. The model
reads the answers, a line each, then the question in a line of its own, and writes the line that comes next. It is a
fine-tuned model of the task `generate`, whose source had that form, or a language model, which goes on with it.

Nothing here knows whether what is written is true. So it is never an answer of the desk: it is marked, it carries its
sources, and it stands only where the desk was not sure and would have asked "did you mean".
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from segue.api.generate import generate
from segue.api.models import check_language_model
from segue.api.predict import load_finetuned
from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import TASK
from segue.errors import ConfigError
from segue.infer.sampling import SamplingSettings
from segue.infer.text_model import load_text_model

LONGEST_SOURCE = 600
"""Characters of an answer that the model reads."""
LONGEST = 1000
"""Characters of what it writes that are shown."""

Writer = Callable[[str, Sequence[str]], str | None]
"""From a question and answers to a text."""


def open_writer(model: str, *, most_tokens: int) -> Writer:
    """A writer with the model of a folder, or of a name."""
    folder = model_folder(find(model))
    if (folder / TASK).is_file():
        return _of_task(folder)
    return _of_language_model(folder, most_tokens)


def _of_task(folder: Path) -> Writer:
    finetuned = load_finetuned(folder)
    if finetuned.task != "generate":
        raise ConfigError(
            f"generate must name a language model, or one fine-tuned on the task generate; got {folder}, fine-tuned on "
            f"the task {finetuned.task}. Name another, or leave it out."
        )

    def write(question: str, answers: Sequence[str]) -> str | None:
        (found,) = finetuned.predict([{"source": _lines(question, answers)}], progress=False)
        return _line(str(found.get("prediction", "")))

    return write


def _of_language_model(folder: Path, most_tokens: int) -> Writer:
    check_language_model(folder)
    model = load_text_model(folder)
    likeliest = SamplingSettings(greedy=True)

    def write(question: str, answers: Sequence[str]) -> str | None:
        prompt = "".join(f"{line}\n" for line in _lines(question, answers))
        return _line(generate(model, prompt, max_tokens=most_tokens, sampling=likeliest, stop=["\n"]))

    return write


def _lines(question: str, answers: Sequence[str]) -> list[str]:
    return [" ".join(text[:LONGEST_SOURCE].split()) for text in (*answers, question)]


def _line(text: str) -> str | None:
    return " ".join(text.split())[:LONGEST] or None
