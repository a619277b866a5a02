"""Small models with tokenisers, as folders: what a pretraining run leaves, without the time it takes."""

from pathlib import Path

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


def write_model(folder: Path, *, objective: str = "permutation", language: str = "english", width: int = 32) -> Path:
    """A model folder: two layers, new weights, a tokeniser trained on a few sentences."""
    text = {"english": ENGLISH, "chinese": CHINESE}[language]
    lines = text.splitlines() * 3
    tokenizer = train_pieces(lines, kind="unigram", vocabulary_size=370 if language == "english" else 367)
    save_tokenizer(tokenizer, folder.with_name(f"{folder.name}-tokenizer"))
    choices = dict(OBJECTIVES[objective])
    words = {"size": tokenizer.size} | dict(choices.pop("vocabulary", {}))  # type: ignore[call-overload]
    memory = {} if objective == "masked" else {"memory": {"length": 32}}
    config = model_config(
        objective=objective,
        vocabulary=words,
        num_layers=2,
        width=width,
        num_heads=2,
        inner_width=2 * width,
        dropout=0.0,
        **memory,
        **choices,
    )
    torch.manual_seed(0)
    save(LanguageModel(config), folder, tokenizer=folder.with_name(f"{folder.name}-tokenizer"))
    assert load_tokenizer(folder / "tokenizer").size == tokenizer.size
    return folder
