"""A model of a monitor from labelled rows, written into a folder with its report."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.apps.monitor.entities import Entities
from segue.apps.monitor.folder import write_model
from segue.apps.monitor.labelled import LabelledRows
from segue.apps.monitor.learn import Learned, learn
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.report import TITLE, report, summary
from segue.report.pages import to_html, to_markdown

REPORT_PAGE, REPORT_TEXT = "report.html", "report.md"


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model that was measured."""

    model: MonitorModel
    rows: LabelledRows
    learned: Learned
    about: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Into an empty folder."""
        blocks = report(self.rows, self.learned, self.about["summary"])
        write_model(folder, self.model, self.rows.rows, self.about)
        (folder / REPORT_PAGE).write_text(to_html(TITLE, blocks), encoding="utf-8")
        (folder / REPORT_TEXT).write_text(to_markdown(TITLE, blocks), encoding="utf-8")


def build(rows: LabelledRows, entities: Entities, *, seed: int, told: Callable[[str], object]) -> Built:
    """Learns and measures."""
    learned = learn(rows, seed=seed, told=told)
    model = MonitorModel(
        linear=learned.linear,
        topics=learned.topics,
        sentiment=learned.sentiment,
        topic=learned.topic,
        entities=entities,
    )
    about = {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": seed,
        "inverse_penalties": learned.inverse_penalties,
        "summary": summary(rows, learned, entities),
    }
    return Built(model=model, rows=rows, learned=learned, about=about)
