"""Notes of a desk: that a question is in another language than its model is said once."""

import warnings
from pathlib import Path
from typing import Any

import segue
from segue.errors import SegueWarning
from tests.tasks.models import write_model

ROWS = [
    {"question": "Where is my parcel?", "answer": "Look at Orders."},
    {"question": "I lost my card", "answer": "Block it in the app."},
]
FOREIGN = ("我的快递到哪里了，请告诉我", "退款什么时候能够到账呢", "密码忘了应该怎么办")


def notes(work: Any) -> int:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", SegueWarning)
        work()
    return sum("another language" in str(one.message) for one in found)


def test_another_language_is_noted_once(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", language="english")
    segue.learn_desk(ROWS, tmp_path / "desk", model=str(model), finetune=False, progress=False)
    desk = segue.open_desk(tmp_path / "desk")
    assert notes(lambda: [desk.ask(question) for question in FOREIGN]) == 1
    assert notes(lambda: [desk.ask(question) for question in FOREIGN]) == 0
    rows = [{"question": question, "answer": f"答复：{question}"} for question in FOREIGN]
    options: dict[str, Any] = {"model": str(model), "finetune": False, "progress": False}
    assert notes(lambda: segue.learn_desk(rows, tmp_path / "other", **options)) == 1
