"""Recognition of names that are missing from the list: by a tagger, or in English by a rule.

In: texts. Out: names. They are counted and proposed to the operator, who adds those worth watching to the list
(`listing`); until then a name is not watched.

The setting `find_names` has one or several methods, separated by commas:

- `rule-en`: English texts, by the rule below. It is fast, and reads every text.
- `entities-zh`: the packaged tagger, Chinese texts. It knows the organisations of a newspaper and few companies.
- FOLDER: a tagger that the operator fine-tuned (`segue finetune --task tag`), all texts; en=FOLDER or zh=FOLDER, texts
  of one language. Taggers are slow, so they read only texts without a known entity.

The rule: consecutive capitalised words (Globex Energy, Procter & Gamble, Bank of Utopia), words after a dollar sign
($HOOLI), and names that end in Inc, Corp, PLC and the like. A single word at the beginning of a sentence counts only
with such an ending; articles, prepositions, days, months and words with an underscore are not names. In Headlines Where
Every Word Is Capitalised, and in texts in capitals, only tickers and such endings count. People and places are proposed
too: the rule cannot tell them from companies.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from segue.api.predict import FinetunedModel, load_finetuned
from segue.apps.monitor.entities import Entities
from segue.errors import ConfigError

CHINESE = "entities-zh"
"""The packaged tagger, for Chinese only."""
RULE = "rule-en"
TAG = "tag"
"""Task of the models."""
LANGUAGES = ("en", "zh", "other")
KINDS = ("ORG", "organization", "company")
SURE = 0.6
"""Minimum probability of a name."""
LONGEST_TEXT = 500
"""Number of characters of a text that a tagger reads: it is a hundred times slower than the linear model."""
LONGEST_FOR_RULE = 5000
"""Number of characters of a text that the rule reads."""
LENGTHS = (2, 40)
MOST_WORDS = 5
CAPITALS = 0.6
"""Share of capitalised words above which capitals mean nothing."""

_LEGAL = frozenset({"inc", "corp", "ltd", "plc", "llc", "ag", "nv", "ab", "asa", "oyj", "gmbh"})
"""Endings that mark a company even if every word is capitalised."""
_SUFFIXES = _LEGAL | {
    "corporation",
    "limited",
    "co",
    "company",
    "group",
    "holdings",
    "partners",
    "bank",
    "lp",
    "sa",
    "se",
}
_SMALL_WORDS = """the a an this that these those it its he she they we you i our their his her my your in on at by for
from of to with without after before as and or but if when while since during over under between among about against
into than then there here what which who why how where not no yes all some any each every both more most many much new
also only just still however although despite monday tuesday wednesday thursday friday saturday sunday january february
march april may june july august september october november december today yesterday tomorrow rt via url ceo cfo q1 q2
q3 q4 us uk eu gdp ipo usd eur"""
_NO_NAMES = frozenset(_SMALL_WORDS.split())
_TICKER = re.compile(r"\$\s?([A-Z][A-Z0-9]{0,5})\b")
_WORD = re.compile(r"(?<![\w@#$/.])[^\W\d_][\w'’.-]*[\w]|(?<![\w@#$/.])[A-Z]\b|&")
_ENDS = re.compile(r"[.!?:;\n\"“”()\[\]]")


Word = tuple[str, int, int]
"""A word, its start and its end."""


def names_by_rule(text: str) -> list[str]:
    """Return the names in an English text, as written, each once."""
    text = text[:LONGEST_FOR_RULE]
    found = [match[1] for match in _TICKER.finditer(text)]
    words = [(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]
    count = sum(word != "&" for word, _, _ in words)
    loud = count > 3 and sum(word[0].isupper() for word, _, _ in words) > CAPITALS * count
    run: list[Word] = []
    begins = True
    for place, (word, start, _) in enumerate(words):
        between = text[words[place - 1][2] : start] if place else "."
        ended = _ENDS.search(between) is not None
        goes_on = not between.strip() or (between.strip() == "," and _plain(word) in _SUFFIXES)
        if run and not goes_on:
            found += _closed(text, run, begins=begins, loud=loud)
            run = []
        if not run:
            begins = ended
        joins = run and word.lower() in ("&", "of") and _followed(text, words, place)
        if joins and word != "&" and begins and len(run) == 1 and _plain(run[0][0]) not in _SUFFIXES:
            joins, run = False, []  # "Shares of Acme": the first word has a capital for another reason
        if joins or (word[0].isupper() and _plain(word) not in _NO_NAMES and "_" not in word):
            run.append(words[place])
        else:
            found += _closed(text, run, begins=begins, loud=loud)
            run = []
    found += _closed(text, run, begins=begins, loud=loud)
    return list(dict.fromkeys(name for name in found if LENGTHS[0] <= len(name) <= LENGTHS[1]))


def _plain(word: str) -> str:
    return word.lower().replace(".", "")


def _followed(text: str, words: Sequence[Word], place: int) -> bool:
    """Return True if the word at `place` is followed by another word of a name."""
    if place + 1 == len(words):
        return False
    word, start, _ = words[place + 1]
    return word[0].isupper() and "_" not in word and not text[words[place][2] : start].strip()


def _closed(text: str, run: Sequence[Word], *, begins: bool, loud: bool) -> list[str]:
    """Return the name that consecutive words form, if they form one."""
    if not run or len(run) > MOST_WORDS:
        return []
    ending = _plain(run[-1][0])
    alone = len(run) == 1
    if (alone and (begins or ending in _SUFFIXES)) or (loud and (alone or ending not in _LEGAL)):
        return []
    return [re.sub(r"(?:['’]s|['’.])$", "", text[run[0][1] : run[-1][2]])]


class Tagger:
    """A tagger by its name or folder, loaded when it is first needed."""

    def __init__(self, name: str, language: str | None) -> None:
        self._name, self._language = name, language

    @cached_property
    def _model(self) -> FinetunedModel:
        return load_finetuned(self._name)

    def check(self) -> None:
        """Raise CheckpointError if there is no such model, ConfigError if it is for another task."""
        if self._model.task != TAG:
            raise ConfigError(
                f"find_names must name models that tag organisations; got {self._name}, which is for the task "
                f"{self._model.task}. Fine-tune one with segue finetune --task tag."
            )

    def reads(self, language: str) -> bool:
        """Return True if it reads texts of this language."""
        return self._language is None or self._language == language

    def find(self, texts: Sequence[str]) -> list[str]:
        """Return the names of organisations in texts, once for each text."""
        found: list[str] = []
        rows = [{"text": text[:LONGEST_TEXT]} for text in texts]
        for row in self._model.predict(rows, progress=False) if rows else ():
            names = []
            for one in row.get("entities", ()):
                name = str(one["text"]).strip()
                if one["type"] in KINDS and one["probability"] >= SURE and LENGTHS[0] <= len(name) <= LENGTHS[1]:
                    names.append(name)
            found += dict.fromkeys(names)
        return found


class NameFinder:
    """All methods of a setting."""

    def __init__(self, ways: str) -> None:
        self._rule, self._taggers = False, []  # type: tuple[bool, list[Tagger]]
        for way in filter(None, (one.strip() for one in ways.split(","))):
            language, _, name = way.rpartition("=") if way.split("=")[0] in LANGUAGES else ("", "", way)
            if not name:
                raise ConfigError(f"find_names must name a folder behind {way!r}; got none. Write {way}FOLDER.")
            if name == RULE:
                self._rule = True
            else:
                self._taggers.append(Tagger(name, "zh" if name == CHINESE else language or None))

    def check(self) -> None:
        """Load all taggers: raise CheckpointError or ConfigError now, and not with the first text, if one is missing or
        is a model for another task."""
        for tagger in self._taggers:
            tagger.check()

    def find(self, texts: Iterable[tuple[str, str, bool]], entities: Entities) -> list[str]:
        """Return names that are missing from the list, once for each text that has them. `texts` are triples of text,
        language, and whether it names an entity of the list."""
        given = list(texts)
        found: list[str] = []
        for text, language, _ in given if self._rule else ():
            if language == "en":
                found += names_by_rule(text)
        for tagger in self._taggers:
            found += tagger.find([text for text, language, named in given if not named and tagger.reads(language)])
        return [name for name in found if name not in entities.codes and not entities.mentions(name)]
