"""What lm-evaluation-harness asks, without the harness; tests/parity/test_lm_eval.py has it too."""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from segue.checkpoint.folder import save
from segue.config import changed
from segue.errors import ConfigError
from segue.infer.harness import HarnessModel, register
from segue.infer.score import TextScore, TokenScore, score_texts
from segue.infer.text_model import load_text_model
from segue.text.files import save_tokenizer
from segue.text.tokenizer import Tokenizer
from tests.infer.test_score import by_token
from tests.infer.texts import TOKENIZER, WITHOUT_EOD
from tests.tiny import MODELS, noisy

MASKED = next(name for name, config in MODELS.items() if config.objective == "masked")


class Asked(NamedTuple):
    args: tuple[object, ...]


def folder(place: Path, name: str, tokenizer: Tokenizer = TOKENIZER) -> Path:
    save_tokenizer(tokenizer, place / "tokenizer")
    model = noisy(changed(MODELS[name], vocabulary={"size": tokenizer.size}))
    save(model, place / "model", tokenizer=place / "tokenizer")
    return place / "model"


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base"])
@pytest.mark.parametrize("tokenizer", [TOKENIZER, WITHOUT_EOD], ids=["eod", "no eod"])
def test_log_likelihoods_add_up_to_the_score(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = folder(tmp_path, name, tokenizer)
    own, asked = load_text_model(path), HarnessModel(str(path))
    pairs = [("ab 中", "文 cd"), ("ab ", "cd"), ("", "天地"), ("ab", ""), ("ab 中", "文 gh")]
    found = asked.loglikelihood([Asked(pair) for pair in pairs])
    for (context, continuation), (value, _) in zip(pairs, found, strict=True):
        rows = list(score_texts(own.model, own.tokenizer, [context + continuation], by_token(segment_length=512)))
        tokens = [row for row in rows if isinstance(row, TokenScore) and row.end > len(context.rstrip())]
        assert value == pytest.approx(sum(row.log_probability or 0.0 for row in tokens), abs=1e-9)
    (rolling,) = asked.loglikelihood_rolling([Asked(("ab 中文",))])
    (whole,) = score_texts(own.model, own.tokenizer, ["ab 中文"])
    assert isinstance(whole, TextScore)
    assert rolling == whole.log_probability


def test_greedy_is_what_greedy_decoding_writes(tmp_path: Path) -> None:
    asked = HarnessModel(str(folder(tmp_path, "transformer-xl-enwik8-base")))
    contexts = [f"{first}{second}" for first in "abc中天" for second in "defg文地"]
    texts = asked.generate_until([Asked((context, {"until": [], "max_gen_toks": 1})) for context in contexts])
    context, written = next(pair for pair in zip(contexts, texts, strict=True) if pair[1].strip())
    ((_, greedy),) = asked.loglikelihood([Asked((context, written))])
    other = "b" if not written.startswith("b") else "a"
    ((_, not_greedy),) = asked.loglikelihood([Asked((context, other))])
    assert (greedy, not_greedy) == (True, False)


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="pseudo-likelihoods only"):
        HarnessModel(str(folder(tmp_path / "masked", MASKED)))
    asked = HarnessModel(str(folder(tmp_path / "causal", "transformer-xl-enwik8-base")))
    with pytest.raises(ConfigError, match="got num_beams"):
        asked.generate_until([Asked(("ab", {"num_beams": 4}))])
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ConfigError, match="pip install lm-eval"):
        register()
