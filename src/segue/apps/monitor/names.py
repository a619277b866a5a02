"""Organisations that are not in the list yet, in texts without a known one: by a tagger, such as the packaged one.

In: texts. Out: names. They are counted for the operator, who puts those worth watching into the list; a name that
nobody looked at is never watched. The packaged `entities-zh` knows organisations of a newspaper and few companies.
"""

from collections.abc import Sequence
from functools import cached_property

from segue.api.predict import FinetunedModel, load_finetuned

CHINESE = "entities-zh"
"""The packaged tagger, which reads Chinese alone."""
KINDS = ("ORG", "organization", "company")
SURE = 0.6
"""Probability from which a name is counted."""
LONGEST_TEXT = 500
"""Characters of a text that are looked at: the network is a hundred times slower than the linear model."""
LENGTHS = (2, 40)


class NameFinder:
    """A tagger by its name or folder, which is loaded when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _model(self) -> FinetunedModel:
        return load_finetuned(self._name)

    def reads(self, language: str) -> bool:
        """Whether it is for texts of this language."""
        return self._name != CHINESE or language == "zh"

    def find(self, texts: Sequence[str]) -> list[str]:
        """Names of organisations, as often as they occur."""
        if not texts:
            return []
        rows = [{"text": text[:LONGEST_TEXT]} for text in texts]
        found = []
        for row in self._model.predict(rows, progress=False):
            for one in row.get("entities", ()):
                name = str(one["text"]).strip()
                if one["type"] in KINDS and one["probability"] >= SURE and LENGTHS[0] <= len(name) <= LENGTHS[1]:
                    found.append(name)
        return found
