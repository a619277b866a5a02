"""Constrained output that must be exactly one of several texts: the tokens allowed next.

In: a tokeniser and the texts. Out: the ids that may follow a prefix; none when the choice is complete. Drawing them is
left to `sampling` (`Sampler.choose` takes them as `allowed`), and comparing the probabilities of whole texts to
scoring.

Each text is encoded alone and as it is given. So a word that follows another one with a space has its space here:
" yes", not "yes". Only this one tokenisation of a text is allowed.

A choice is complete as soon as no other text continues it. If one text is a prefix of another ("no", "nothing"), only
an end token can tell them apart: then `end` is allowed after the shorter one. Without an `end` such texts are refused.
"""

from collections.abc import Sequence

from segue.errors import DataError
from segue.text.tokenizer import Tokenizer


class Choices:
    """The texts that may be generated, as ids."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str], *, end: int | None = None) -> None:
        if isinstance(texts, str):
            raise DataError(f"choices must be a list of texts; got the text {texts!r}. Put it into a list.")
        if not texts:
            raise DataError("choices must have at least one text; got an empty list. Give the texts to choose from.")
        self.texts = tuple(texts)
        self.end = end
        self.ids = tuple(_encoded(tokenizer, text, end=end) for text in texts)
        self._chosen: dict[tuple[int, ...], int] = {}
        for number, ids in enumerate(self.ids):
            if ids in self._chosen:
                raise DataError(
                    f"choices must be different for the tokeniser; got {texts[self._chosen[ids]]!r} and "
                    f"{texts[number]!r}, which have the same ids. Remove one."
                )
            self._chosen[ids] = number
        following: dict[tuple[int, ...], set[int]] = {}
        for ids in self.ids:
            for length, index in enumerate(ids):
                following.setdefault(ids[:length], set()).add(index)
        if end is None:
            self._refuse_beginnings(following)
        else:
            for ids in self.ids:
                if ids in following:
                    following[ids].add(end)
                    self._chosen[(*ids, end)] = self._chosen[ids]
        self._following = {prefix: tuple(sorted(ids)) for prefix, ids in following.items()}

    def allowed(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return the ids that may follow a prefix, ascending; none if the choice is complete."""
        written = tuple(prefix)
        if written in self._following:
            return self._following[written]
        if written in self._chosen:
            return ()
        raise DataError(
            f"what was written must be the beginning of a choice; got the ids {list(written)[:20]}. "
            "Draw every token from allowed()."
        )

    def _refuse_beginnings(self, following: dict[tuple[int, ...], set[int]]) -> None:
        for ids, text in zip(self.ids, self.texts, strict=True):
            if ids in following:
                longer = next(
                    other
                    for other_ids, other in zip(self.ids, self.texts, strict=True)
                    if len(other_ids) > len(ids) and other_ids[: len(ids)] == ids
                )
                raise DataError(
                    f"without an end, no choice may be a prefix of another; got {text!r} and {longer!r}. Give the id "
                    "that ends a text, or end each choice in its own way, with a full stop, for example."
                )


def _encoded(tokenizer: Tokenizer, text: str, *, end: int | None) -> tuple[int, ...]:
    ids = tuple(int(index) for index in tokenizer.encode(text))
    if not ids:
        raise DataError(f"a choice must have at least one token; got {text!r}, which has none. Remove it.")
    if tokenizer.specials.get("unk") in ids:
        raise DataError(
            f"a choice must be in the vocabulary of the tokeniser; got {text!r}, which has an unknown part. "
            "Use other words."
        )
    if end is not None and end in ids:
        raise DataError(
            f"the end must not be a token of a choice; got the id {end}, which is in {text!r}. Use a special token."
        )
    return ids
