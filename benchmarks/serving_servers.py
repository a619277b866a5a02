"""The measured servers, each in a process of its own, and their models.

segue and `transformers serve` serve folders that are written here, with new weights and a tokeniser of 10,000 pieces;
llama.cpp serves the output of `benchmarks.llama_server`. The environments of the peers: `make .venv-llama/ready
.venv-transformers5/ready`.
"""

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from benchmarks.provenance import ROOT
from segue.checkpoint.convert import convert
from segue.checkpoint.folder import save
from segue.config import ModelConfig, model_config
from segue.model import LanguageModel
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.train import train_pieces

LLAMA, TRANSFORMERS = ROOT / ".venv-llama", ROOT / ".venv-transformers5"
VOCABULARY = 10_000
ENDLESS = {"7": -100}
"""A bias against the end-of-document token, which has this id in every tokeniser that segue trains."""
_STARTING = 180.0
_SYLLABLES = [first + rest for first in "bcdfghjklmnprstvwz" for rest in ("a", "e", "i", "o", "u", "an", "en", "or")]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a model."""

    layers: int
    width: int
    heads: int
    memory: int
    vocabulary: int = VOCABULARY
    spread: float | None = None
    """Standard deviation of the weights; None: as initialised."""

    @property
    def inner_width(self) -> int:
        return 4 * self.width


LARGE = Shape(layers=6, width=512, heads=8, memory=512)
"""Shape of the other benchmarks of streams."""
MIDDLE = Shape(layers=3, width=256, heads=4, memory=512)
"""Shape beside llama.cpp at 64,000 tokens, which it would take minutes to read in the larger shape."""
SMALL = Shape(layers=2, width=32, heads=2, memory=32, vocabulary=2_000, spread=0.3)
"""Shape for tests of the number of sessions. Its weights are large: other contexts give other numbers."""


# ---------------------------------------------------------------------------------------------------------- models


@lru_cache
def _known() -> tuple[list[str], list[float]]:
    """Return made-up words, and their cumulative frequencies."""
    chance = random.Random(0)
    known = ["".join(chance.choice(_SYLLABLES) for _ in range(chance.randint(1, 4))) for _ in range(12_000)]
    return known, list(itertools.accumulate(1 / (place + 10) for place in range(len(known))))


def words(*, seed: int, count: int) -> list[str]:
    """Return `count` random words."""
    known, frequent = _known()
    return random.Random(seed).choices(known, cum_weights=frequent, k=count)


@lru_cache(maxsize=64)
def text(*, seed: int, count: int) -> str:
    """Return a text of `count` random words."""
    return " ".join(words(seed=seed, count=count))


def text_of(model: Path, *, seed: int, tokens: int) -> str:
    """Return a text of about `tokens` tokens of a model's tokeniser; its last word may be cut."""
    tokenizer = load_tokenizer(model / "tokenizer")
    whole = text(seed=seed, count=tokens)
    return whole[: int(tokenizer.encode_with_offsets(whole).ends[tokens - 1])]


def write_tokenizer(folder: Path, *, vocabulary: int) -> Path:
    """Write a tokeniser trained on such words."""
    if not folder.is_dir():
        many = words(seed=1, count=12 * vocabulary)
        lines = (" ".join(many[start : start + 12]) for start in range(0, len(many), 12))
        save_tokenizer(train_pieces(lines, vocabulary_size=vocabulary), folder)
    return folder


def config_of(shape: Shape, *, objective: str) -> ModelConfig:
    """Return the config of a Transformer-XL, or of an XLNet that transformers supports too."""
    sizes = {
        "vocabulary": {"size": shape.vocabulary},
        "memory": {"length": shape.memory},
        "num_layers": shape.layers,
        "width": shape.width,
        "num_heads": shape.heads,
        "inner_width": shape.inner_width,
    }
    if objective == "causal":
        return model_config(**sizes)
    positions = {"kind": "xl", "shared_biases": False}
    how = {"segments": "relative", "activation": "gelu_tanh", "norm_epsilon": 1e-12, "positions": positions}
    return model_config(objective=objective, **how, **sizes)


def write_model(folder: Path, shape: Shape, *, objective: str = "causal") -> Path:
    """Write a model folder with new weights; an existing one is reused."""
    if folder.is_dir():
        return folder
    tokenizer = write_tokenizer(folder.with_name(f"tokenizer-{shape.vocabulary}"), vocabulary=shape.vocabulary)
    torch.manual_seed(0)
    model = LanguageModel(config_of(shape, objective=objective))
    if shape.spread is not None:
        with torch.no_grad():
            for value in model.parameters():
                if value.dim() > 1:
                    value.normal_(std=shape.spread)
    save(model, folder, tokenizer=tokenizer)
    return folder


def write_for_transformers(folder: Path, model: Path) -> Path:
    """Convert the same model for transformers."""
    if not folder.is_dir():
        convert(str(model), folder, to="hf")
    return folder


# --------------------------------------------------------------------------------------------------------- servers


def version(environment: Path, package: str) -> str:
    """Return the version of a package in an environment of its own."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    words = [str(environment / "bin" / "python"), "-c", code]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


class Running:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str, facts: dict[str, str]) -> None:
        self.process, self.url, self.facts = process, url, facts

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def opened(self) -> int:
        """Return the number of open files and sockets."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextlib.contextmanager
def segue_server(models: Sequence[Path], folder: Path, *settings: str, threads: int | None = None) -> Iterator[Running]:
    """Run `segue serve` with some settings, each KEY=VALUE; it must exit with 0."""
    own = [] if threads is None else ["env", f"OMP_NUM_THREADS={threads}"]
    command = [*own, sys.executable, "-m", "segue", "serve", *map(str, models), "--port", "0"]
    command += [word for setting in settings for word in ("--set", setting)]
    with _started(command, folder / f"segue-{time.monotonic_ns()}.log") as server:
        yield server
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(120)
        if code:
            raise RuntimeError(f"segue serve must end with 0; got {code}")


@contextlib.contextmanager
def llama_server(folder: Path, *options: str) -> Iterator[Running]:
    """Run llama.cpp; `options` are those of `benchmarks.llama_server`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(LLAMA / "bin" / "python"), "-m", "benchmarks.llama_server", "--folder", str(folder), *options]
    with _started(command, folder / "llama.log") as server:
        yield server


@contextlib.contextmanager
def transformers_server(model: Path, folder: Path) -> Iterator[Running]:
    """Run `transformers serve` with one model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(TRANSFORMERS / "bin" / "transformers"), "serve", str(model), "--port", str(port)]
    with _started([*command, "--host", "127.0.0.1"], folder / "transformers.log", health=port) as server:
        yield server


@contextlib.contextmanager
def _started(command: list[str], log: Path, *, health: int | None = None) -> Iterator[Running]:
    """Start a server and wait until it prints its address, or with `health` until it responds on this port."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=file, stderr=file, text=True, env=environment
        )
    try:
        end = time.monotonic() + _STARTING
        while time.monotonic() < end and process.poll() is None:
            said = log.read_text(errors="replace")
            found = re.search(r"serving on (http://\S+)", said)
            url = found[1] if found else None
            if health is not None and _answers(health):
                url = f"http://127.0.0.1:{health}"
            if url is not None:
                yield Running(process, url, dict(re.findall(r"^(\w+) (\d+)$", said, flags=re.MULTILINE)))
                return
            time.sleep(0.05)
        raise RuntimeError(f"a server must begin within {_STARTING:g} s; {command[0]} said:\n{log.read_text()[-3000:]}")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
