"""Checks of the installation and of models."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from segue.api.errors import python_errors
from segue.api.models import ModelLike, drawn_model, model_or_random
from segue.config import changed
from segue.evaluation.checks import Check, check_installation, check_model
from segue.model import LanguageModel
from segue.model.named import named

SMALL = {
    "num_layers": 3,
    "width": 64,
    "num_heads": 4,
    "head_width": 16,
    "inner_width": 128,
    "vocabulary": {"size": 500},
}
EXTRAS = {
    "corpora": "Parquet files, to read and to write.",
    "tokenizers": "The tokenizer.json of transformers 5.",
    "pictures": "Plots of runs and evaluations.",
    "hub": "Models by their name on the hub, and segue push.",
    "tune": "The search of segue tune.",
    "export": "ONNX programs.",
    "serve": "The server of segue serve.",
    "redis": "Sessions in Redis, for several servers of segue serve.",
    "postgres": "What segue desk, monitor and recommend keep, in PostgreSQL.",
    "faiss": "Nearest items of a large catalogue, by faiss.",
    "lm-eval": "lm-evaluation-harness, through segue-lm-eval.",
}
"""Purpose of each optional extra."""
NOT_FOR_USERS = {"test", "check", "browser"}


@dataclass(frozen=True, kw_only=True)
class Examination:
    """A group of related checks."""

    title: str
    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return all(check.passed is not False for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class Extra:
    """An optional extra of the installation."""

    name: str
    purpose: str
    packages: Sequence[str]
    missing: Sequence[str]
    """Packages of the extra that are not installed."""


@python_errors
def doctor(model: ModelLike | None = None) -> list[Examination]:
    """Check the installation, and test a model for known implementation errors: leaks, wrong relative shifts, lost
    memory, padding.

    Args:
        model: A loaded model, its folder or name; or a config file or name, for random weights. Default: a small
            Transformer-XL and a small XLNet.

    Returns:
        The examinations, each with its checks: name, meaning, measured value, and whether it passed.

    Raises:
        CheckpointError: If the model does not exist.
        ConfigError: If there is no such config.

    Examples:
        >>> all(examined.passed for examined in segue.doctor("model"))
        True
    """
    return [Examination(title=title, checks=list(checks)) for title, checks in examinations(model)]


def examinations(model: ModelLike | None) -> Iterator[tuple[str, Iterator[Check]]]:
    """Yield the examinations of `doctor`: titles, and checks as they complete."""
    yield "Installation", check_installation()
    for title, one in _models(model):
        yield title, check_model(one)


def extras() -> list[Extra]:
    """Return the optional extras for users, from the metadata of the installation."""
    found: dict[str, list[str]] = {}
    for text in requires("segue") or []:
        package, _, condition = text.partition(";")
        extra = re.search(r"""extra *== *['"](\w+)['"]""", condition)
        if extra is not None and extra[1] not in NOT_FOR_USERS:
            found.setdefault(extra[1], []).append(re.match(r"[\w.-]+", package)[0])  # type: ignore[index]
    return [
        Extra(
            name=name,
            purpose=EXTRAS.get(name, ""),
            packages=packages,
            missing=[package for package in packages if not _installed(package)],
        )
        for name, packages in found.items()
    ]


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _models(model: ModelLike | None) -> Iterator[tuple[str, LanguageModel]]:
    if model is None:
        for name in ("transformer-xl-enwik8-base", "xlnet-base"):
            yield f"A small {name}, random weights", drawn_model(changed(named(name), **SMALL))
        return
    found, folder, drawn = model_or_random(model)
    if not drawn:
        yield "The model" if folder is None else f"The model in {folder}", found
    elif Path(str(model)).suffix == ".toml":
        yield f"The model of {model}, random weights", found
    else:
        yield f"{model}, random weights", found
