"""Long documents of real text with one planted sentence, late in the document, that states the class.

In: a corpus, by the name of its sample. Out: rows with `text` and `label`, always the same for the same seed. The
beginning of a document alone reveals nothing about the class; the planted sentence alone is enough.
"""

import math
import random
from collections.abc import Iterator
from typing import Any

from segue.data.samples import samples
from segue.errors import DataError
from segue.study.schema import PlantedConfig

WORDS = {
    "English": (
        "The verdict of this record is {}.",
        ("granted", "refused", "deferred", "withdrawn", "amended", "sealed", "reopened", "settled"),
        " ",
    ),
    "Chinese": (
        "本卷的结论是{}。",
        ("同意", "驳回", "延期", "撤回", "修改", "封存", "重审", "和解"),
        "",
    ),
}
"""The sentence, its classes, and the separator between words, by language."""


def planted_rows(settings: PlantedConfig, count: int, *, training: int = 0, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield `count` documents; the first `training` of them have the length of training documents. Chinese text is
    split into characters, which count as words."""
    sample = samples()[settings.sample]
    sentence, names, between = WORDS[sample.language]
    units = [unit for document in sample.documents() for line in document for unit in _units(line, between)]
    for name, (_, most) in (("longest", settings.lengths), ("train_longest", settings.train_lengths)):
        if len(units) < most:
            raise DataError(
                f"planted.{name} must be at most the length of the sample {settings.sample}, {len(units):,} words; got "
                f"{most:,}. Use a shorter one."
            )
    draws = random.Random(f"planted {seed}")
    for number in range(count):
        shortest, longest = settings.train_lengths if number < training else settings.lengths
        length = round(math.exp(draws.uniform(math.log(shortest), math.log(longest))))
        start = draws.randrange(len(units) - length + 1)
        label = names[number % settings.classes]
        text = list(units[start : start + length])
        at = round(length * draws.uniform(settings.earliest, 1.0))
        text.insert(at, sentence.format(label))
        yield {"text": between.join(text), "label": label}


def _units(line: str, between: str) -> list[str]:
    return line.split() if between else [letter for letter in line if not letter.isspace()]
