"""lm-evaluation-harness with a model of segue, offline, on local tasks: the numbers are those of segue's own scores."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from segue.checkpoint.folder import save
from segue.config import changed
from segue.infer.sampling import SamplingSettings
from segue.infer.score import ScoreSettings, TokenScore, score_texts
from segue.infer.session import Session
from segue.infer.text_model import TextModel, load_text_model
from segue.model import LanguageModel
from segue.model.named import named
from segue.text.symbols import ByteTokenizer

pytest.importorskip("lm_eval")

ROWS = [
    {"question": "The keeper counts the", "options": [" ships", " light", "船"], "answer": 0},
    {"question": "守塔的老人 ", "options": ["数船", "写字"], "answer": 1},
    {"question": "In 1995, ", "options": ["he counted 1,204.", "no one did.\nNever."], "answer": 1},
]
TASKS = {
    "local_choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "options",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    },
    "local_rolling": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}{{options[0]}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    },
    "local_writing": {
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{options[0]}}",
        "generation_kwargs": {"until": ["\n", "q"], "max_gen_toks": 12, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def made(place: Path) -> TextModel:
    """A small model of bytes in float64."""
    tokenizer = ByteTokenizer()
    (place / "tokenizer").mkdir()
    tokenizer.save(place / "tokenizer")
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "width": 16, "num_heads": 2, "head_width": 8, "inner_width": 16}
    config = changed(
        named("transformer-xl-enwik8-base"), **sizes, vocabulary={"size": tokenizer.size}, memory={"length": 8}
    )
    model = LanguageModel(config).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save(model, place / "model", tokenizer=place / "tokenizer")
    return load_text_model(place / "model")


def samples(place: Path) -> dict[str, list[dict[str, Any]]]:
    """Runs the command; gives what the harness wrote about each row, by task."""
    (place / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    for name, task in TASKS.items():
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(place / "rows.jsonl")}}}
        text = json.dumps({"task": name, "test_split": "test"} | data | task)  # JSON is YAML
        (place / "tasks").mkdir(exist_ok=True)
        (place / "tasks" / f"{name}.yaml").write_text(text)
    command = [sys.executable, "-m", "segue.cli.lm_eval", "run", "--model", "segue"]
    command += ["--model_args", f"model={place / 'model'}", "--include_path", str(place / "tasks")]
    command += ["--tasks", *TASKS, "--output_path", str(place / "out"), "--log_samples"]
    alone = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(place / "cache")}
    result = subprocess.run(command, env=os.environ | alone, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    found = {}
    for name in TASKS:
        (path,) = (place / "out").rglob(f"samples_{name}_*.jsonl")
        found[name] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return found


def test_the_numbers_are_those_of_segue(tmp_path: Path) -> None:
    own = made(tmp_path)
    found = samples(tmp_path)
    for row, sample in zip(ROWS, found["local_choice"], strict=True):
        question, options = str(row["question"]), row["options"]
        assert isinstance(options, list)
        for option, answers in zip(options, sample["resps"], strict=True):
            value, greedy = answers[0]
            tokens = list(score_texts(own.model, own.tokenizer, [question + option], ScoreSettings(by="token")))
            new = [one for one in tokens if isinstance(one, TokenScore) and one.end > len(question.rstrip())]
            expected = sum(one.log_probability for one in new if one.log_probability is not None)
            assert float(value) == pytest.approx(expected, abs=1e-12)
            assert str(greedy) == str(is_greedy(own, question.rstrip(), len(new), (question + option)))
    for row, sample in zip(ROWS, found["local_rolling"], strict=True):
        (whole,) = score_texts(own.model, own.tokenizer, [f"{row['question']}{row['options'][0]}"])  # type: ignore[index]
        assert float(sample["resps"][0][0]) == pytest.approx(whole.log_probability, abs=1e-12)
    for row, sample in zip(ROWS, found["local_writing"], strict=True):
        greedy = SamplingSettings(greedy=True)
        written = Session(own).stream(str(row["question"]), max_tokens=12, sampling=greedy, stop=["\n", "q"])
        assert sample["resps"][0][0] == "".join(written)


def is_greedy(own: TextModel, context: str, count: int, text: str) -> bool:
    """Whether greedy decoding writes the text, of so many tokens, after the context."""
    pieces = Session(own).write(context, max_tokens=count, sampling=SamplingSettings(greedy=True))
    written = [one.id for one in pieces if one.id is not None]
    return written == own.tokenizer.encode(text).tolist()[-count:]
