"""The command that makes the packaged models, on a few texts and with few updates: every step, and only once."""

import json
import lzma
import random
from dataclasses import replace
from pathlib import Path

import pytest
from recipes.make import MODELS, Pretrained, measured

import segue
from recipes import make
from segue.data import samples

TINY = ["model.num_layers=1", "model.width=16", "model.num_heads=2", "model.inner_width=16", "model.vocabulary.width=8"]
WORDS = ["房间", "很好", "不好", "我们", "北京", "第", "个", "的", "在", "人", "说", "看", "去"]
FEW = ["data.lanes=4", "data.segment_length=16", "train.steps=6", "train.warmup_steps=2", "train.decay_steps=2"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "pretraining" / "zh"
    folder.mkdir(parents=True)
    chance = random.Random(0)
    for name in ("wiki", "laws", "late_qing_novels", "commonvoice"):
        with lzma.open(folder / f"{name}.txt.xz", "wt", encoding="utf-8") as file:
            for _ in range(60):
                file.write("\n".join("".join(chance.choices(WORDS, k=40)) + "。" for _ in range(3)) + "\n\n")
    return tmp_path / "data"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": f"第{n}个房间{'很好' if n % 2 else '不好'}", "label": "pn"[n % 2]} for n in range(80)]
    sample = replace(samples.labelled_samples()["chinese-sentiment"], rows=lambda: rows)
    monkeypatch.setattr(samples, "labelled_samples", lambda: {"chinese-sentiment": sample})
    monkeypatch.setattr(make, "labelled_samples", lambda: {"chinese-sentiment": sample})
    monkeypatch.setattr(make, "PIECES", {"zh": 300})
    monkeypatch.setattr(make, "TEST", 20)
    for name in ("transformer-xl-mini-zh", "xlnet-mini-zh"):
        recipe = MODELS[name]
        assert isinstance(recipe, Pretrained)
        lengths = ["model.memory.length=8", *(["model.memory.reuse_length=8"] if recipe.start else [])]
        stages = [[*stage, *TINY, *FEW, *lengths] for stage in recipe.stages]
        monkeypatch.setitem(MODELS, name, replace(recipe, stages=stages))
    head = replace(MODELS["sentiment-zh"], settings=["train.epochs=1"], rank=2)
    monkeypatch.setitem(MODELS, "sentiment-zh", head)


@pytest.mark.usefixtures("tiny")
def test_a_head_is_made_with_all_that_it_needs(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGUE_MODELS", "")  # set by the command, and then as before again
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = tmp_path / "work"
    out = make.make("sentiment-zh", data=data, work=work)
    names = sorted(path.name for path in out.parent.iterdir())
    assert names == ["sentiment-zh", "transformer-xl-mini-zh", "xlnet-mini-zh"]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "as packaged, differences of rank 2" in card
    assert "Sources and licences" in (out.parent / "xlnet-mini-zh" / "README.md").read_text(encoding="utf-8")
    (answer,) = segue.predict("sentiment-zh", ["第3个房间很好"], progress=False)
    assert answer["prediction"] in ("p", "n")
    written = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    make.make("sentiment-zh", data=data, work=work)
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()} == written


def test_figures_are_shares_of_what_is_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = [{"prediction": "a"}, {"prediction": "b"}]
    monkeypatch.setattr(segue, "predict", lambda *_, **__: answers)
    assert measured(tmp_path, [{"text": "", "label": "a"}, {"text": "", "label": "a"}]) == 0.5
    answers = [{"entities": [{"start": 0, "end": 2, "type": "PER"}, {"start": 3, "end": 4, "type": "LOC"}]}]
    gold = json.loads('[{"text": "", "entities": [{"start": 0, "end": 2, "type": "PER"}]}]')
    assert measured(tmp_path, gold) == pytest.approx(2 / 3)
