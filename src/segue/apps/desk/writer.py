"""Generated replies, based on the answers of the candidate topics; only if the operator names a model.

In: a question, and the answers of the most likely topics. Out: a text, or None if the model generates nothing. The
prompt is the answers, one per line, then the question on a line of its own; the model generates the next line. It is a
model fine-tuned on the task `generate` with sources of this form, or a language model.

Nothing here verifies what is generated. It is therefore never an answer of the desk: it is marked, it names its
sources, and it is used only where the desk would ask "did you mean" because its confidence is too low.
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
"""Maximum number of characters read of an answer."""
LONGEST = 1000
"""Maximum number of characters of a generated reply."""

Writer = Callable[[str, Sequence[str]], str | None]
"""Function from a question and answers to a reply, or None."""


def open_writer(model: str, *, most_tokens: int) -> Writer:
    """Return a writer that uses a model, given by folder or name."""
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
