"""Small models with tokenisers, as folders: what a pretraining run leaves, without the time it takes."""

import functools
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from segue.checkpoint.folder import save
from segue.config import model_config
from segue.model import LanguageModel
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.train import train_pieces

ENGLISH = """The room was clean and the staff were very kind to us.
A dull film with a weak story; I nearly fell asleep in the middle.
She was born in Paris in 1906 and moved to London with her family.
What does the man want to buy? He wants to buy a new coat for his wife.
The company said that profit rose by ten per cent in the first quarter.
Two young men are playing football in the park near the river.
"""
CHINESE = """房间很干净，服务员的态度也非常好，下次还会再来。
这本书写得太差了，看了一半就不想看下去，浪费时间。
他出生于北京，后来随父母搬到上海，在那里读完了大学。
男的想买什么？他想给妻子买一件新大衣。
公司表示，今年第一季度的利润增长了百分之十。
两个年轻人正在河边的公园里踢足球。
"""

OBJECTIVES = {
    "permutation": {"segments": "relative", "positions": {"kind": "xl", "shared_biases": False}},
    "causal": {"vocabulary": {"scale": True}},
    "masked": {"segments": "absolute", "positions": {"kind": "absolute", "max_length": 64}},
}


def write_model(
    folder: Path, *, objective: str = "permutation", language: str = "english", width: int = 32, layers: int = 2
) -> Path:
    """A model folder: new weights, a tokeniser trained on a few sentences. What is made once is written
    again; random numbers go on as if it had been made anew."""
    made = _made(objective, language, width, layers)
    for name, content in made.files.items():
        path = folder.parent / f"{folder.name}{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    torch.set_rng_state(made.random)
    return folder


@dataclass(frozen=True, kw_only=True)
class _Made:
    files: dict[str, bytes]
    """By what follows the name of the folder: those in it, and in the folder of the tokeniser beside it."""
    random: torch.Tensor


@functools.cache
def _made(objective: str, language: str, width: int, layers: int) -> _Made:
    text = {"english": ENGLISH, "chinese": CHINESE}[language]
    lines = text.splitlines() * 3
    tokenizer = train_pieces(lines, kind="unigram", vocabulary_size=370 if language == "english" else 367)
    choices = dict(OBJECTIVES[objective])
    words = {"size": tokenizer.size} | dict(choices.pop("vocabulary", {}))  # type: ignore[call-overload]
    memory = {} if objective == "masked" else {"memory": {"length": 32}}
    config = model_config(
        objective=objective,
        vocabulary=words,
        num_layers=layers,
        width=width,
        num_heads=2,
        inner_width=2 * width,
        dropout=0.0,
        **memory,
        **choices,
    )
    torch.manual_seed(0)
    with TemporaryDirectory() as place:
        folder = Path(place, "model")
        save_tokenizer(tokenizer, f"{folder}-tokenizer")
        save(LanguageModel(config), folder, tokenizer=Path(f"{folder}-tokenizer"))
        assert load_tokenizer(folder / "tokenizer").size == tokenizer.size
        paths = [path for path in Path(place).rglob("*") if path.is_file()]
        files = {str(path).removeprefix(str(folder)): path.read_bytes() for path in paths}
    return _Made(files=files, random=torch.get_rng_state())
