"""Training of a desk model from its knowledge, and writing it to a folder with its report."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from segue.apps.desk.folder import write_model
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.learn import Measured, learn
from segue.apps.desk.model import DeskModel
from segue.apps.desk.network import train_network
from segue.apps.desk.pairs import train_pairs
from segue.apps.desk.parts import MOST_TOPICS
from segue.apps.desk.report import TITLE, report, summary
from segue.apps.desk.second import Trainers
from segue.apps.encoder import Encoder, Reader, fit_whitening, raw_vectors
from segue.errors import ConfigError
from segue.infer.text_model import load_text_model
from segue.report.pages import to_html, to_markdown
from segue.text.coverage import LanguageWatch
from segue.text.unicode import is_chinese

ENGLISH, CHINESE = "xlnet-mini-en", "xlnet-mini-zh"
"""Packaged embedding models."""
NO_MODEL = "none"
"""Name that stands for no embeddings."""
WORTH = 0.02
"""Share of the texts above which a language gets its own embedding model."""
MOST_WHITENED = 2000
"""Texts to which the whitening is fitted: at least this many, if there are as many, and fewer than twice as many."""
REPORT_PAGE, REPORT_TEXT = "report.html", "report.md"


@dataclass(frozen=True, kw_only=True)
class Built:
    """A trained and evaluated model."""

    model: DeskModel
    measured: Measured
    about: dict[str, Any]
    temporary: TemporaryDirectory[str] = field(repr=False)
    """Folder of a fine-tuned network until the model is written."""

    def write(self, folder: Path) -> None:
        """Write the model and its report into an empty folder."""
        blocks = report(self.model.knowledge, self.measured, self.model.fitted, self.about)
        write_model(folder, self.model, self.about)
        (folder / REPORT_PAGE).write_text(to_html(TITLE, blocks), encoding="utf-8")
        (folder / REPORT_TEXT).write_text(to_markdown(TITLE, blocks), encoding="utf-8")


def build(
    knowledge: Knowledge,
    *,
    model: str | None,
    error: float,
    seed: int,
    finetune: bool,
    told: Callable[[str], object],
    outside_share: float | None = None,
) -> Built:
    """Train and evaluate a model.

    `model` is the embedding model: a name, a folder, "none", or None for the packaged ones. With `finetune`, a network
    is tried if there are enough questions. `outside_share` is the expected share of out-of-scope questions; None for
    their share among the held-out questions. `told` receives progress messages.
    """
    if not 0 < error < 1:
        raise ConfigError(f"--error must be between 0 and 1; got {error}. Use 0.05 for 5 wrong answers of 100.")
    if outside_share is not None and not 0 <= outside_share < 1:
        raise ConfigError(
            f"--outside-share must be at least 0 and less than 1; got {outside_share}. Use 0.1 where one question of "
            "ten is not for this desk."
        )
    encoder = choose_encoder(knowledge, model)
    temporary = TemporaryDirectory(prefix="segue-desk-")
    trainers = None
    if finetune and encoder is not None:
        name = max(encoder.readers.values(), key=lambda one: one.width).name
        out, topics = Path(temporary.name) / "run", len(knowledge.topics)
        trainers = Trainers(
            network=partial(train_network, name, topics=topics, out=out, told=told) if topics <= MOST_TOPICS else None,
            pairs=partial(train_pairs, name, out=out, told=told),
        )
    learned = learn(
        knowledge, encoder, error=error, seed=seed, told=told, trainers=trainers, outside_share=outside_share
    )
    built = DeskModel(
        knowledge=knowledge,
        parts=learned.parts,
        encoder=encoder,
        matcher=learned.matcher,
        network=learned.network,
        pairs=learned.pairs,
        fitted=learned.fitted,
    )
    about = {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "encoders": {} if encoder is None else {place: one.name for place, one in encoder.readers.items()},
        "asked_for": {
            "model": model,
            "error": error,
            "seed": seed,
            "finetune": finetune,
            "outside_share": outside_share,
        },
        "summary": summary(knowledge, learned.measured, learned.fitted),
        "held": learned.measured.outcomes.rows(),
    }
    return Built(model=built, measured=learned.measured, about=about, temporary=temporary)


def choose_encoder(knowledge: Knowledge, model: str | None) -> Encoder | None:
    """Return the encoder: a given model for all texts, or the packaged model of each language; None for "none"."""
    if model == NO_MODEL:
        return None
    texts = [one.text for one in knowledge.asked] + [topic.answer for topic in knowledge.topics if topic.answer]
    if model is not None:
        return Encoder(other=_reader(model, texts), chinese=None)
    by_language = {True: [], False: []}  # type: dict[bool, list[str]]
    for text in texts:
        by_language[is_chinese(text)].append(text)
    wanted = {chinese for chinese, some in by_language.items() if len(some) > WORTH * len(texts)}
    return Encoder(
        other=_reader(ENGLISH, by_language[False]) if False in wanted else None,
        chinese=_reader(CHINESE, by_language[True]) if True in wanted else None,
    )


def _reader(name: str, texts: Sequence[str]) -> Reader:
    model = load_text_model(name)
    step = max(1, len(texts) // MOST_WHITENED)
    watch = LanguageWatch(model.tokenizer)
    whitening = fit_whitening(raw_vectors(model, texts[::step], watch=watch))
    return Reader(name=name, model=model, whitening=whitening, watch=watch)
