"""Training of a monitor model from labelled rows, and its folder with the evaluation report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from segue.apps.monitor.entities import Entities
from segue.apps.monitor.folder import write_model
from segue.apps.monitor.labelled import LabelledRows
from segue.apps.monitor.learn import Learned, learn
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.network import NO_MODEL, choose_trainer
from segue.apps.monitor.report import TITLE, report, summary
from segue.apps.monitor.targets import targets_of
from segue.report.pages import to_html, to_markdown

REPORT_PAGE, REPORT_TEXT = "report.html", "report.md"


@dataclass(frozen=True, kw_only=True)
class Built:
    """A trained and evaluated model."""

    model: MonitorModel
    rows: LabelledRows
    learned: Learned
    about: dict[str, Any]
    temporary: TemporaryDirectory[str] = field(repr=False)
    """Folder of the fine-tuned network until the model is written."""

    def write(self, folder: Path) -> None:
        """Write the model and its report into an empty folder."""
        blocks = report(self.rows, self.learned, self.about["summary"])
        write_model(folder, self.model, self.rows.rows, self.about)
        (folder / REPORT_PAGE).write_text(to_html(TITLE, blocks), encoding="utf-8")
        (folder / REPORT_TEXT).write_text(to_markdown(TITLE, blocks), encoding="utf-8")


def build(
    rows: LabelledRows, entities: Entities, *, seed: int, told: Callable[[str], object], model: str = NO_MODEL
) -> Built:
    """Train and evaluate a model. The network `model` (a name, a folder, "auto" for the packaged one of the rows'
    language, or "none") is fine-tuned, and used if it improves the predictions of held-out rows."""
    temporary = TemporaryDirectory(prefix="segue-monitor-")
    texts = [row.text for row in rows.rows if row.sentiment is not None]
    trainer = choose_trainer(model, texts, folder=Path(temporary.name), seed=seed, told=told)
    targets, problems = targets_of(rows.rows, entities)
    rows = replace(rows, left_out={**rows.left_out, **problems})
    learned = learn(rows, seed=seed, told=told, trainer=trainer, targets=targets)
    made = MonitorModel(
        linear=learned.linear,
        topics=learned.topics,
        sentiment=learned.sentiment,
        topic=learned.topic,
        entities=entities,
        entity=learned.entity,
        joined=None if learned.tried is None else learned.tried.joined,
    )
    about = {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": seed,
        "asked_for": {"model": model},
        "inverse_penalties": learned.inverse_penalties,
        "summary": summary(rows, learned, entities),
    }
    return Built(model=made, rows=rows, learned=learned, about=about, temporary=temporary)
