"""A tokeniser and texts for the tiny models, Chinese and English."""

import random

from segue.text.symbols import CharacterTokenizer
from tests.tiny import VOCABULARY

CHARACTERS = "abcdefgh \n中文字天地人"
TOKENIZER = CharacterTokenizer(CHARACTERS)
WITHOUT_EOD = CharacterTokenizer(CHARACTERS, specials=("unk", "mask"))
assert TOKENIZER.size == VOCABULARY


def some_texts(count: int, *, longest: int, seed: int = 0) -> list[str]:
    """Texts of one to `longest` characters."""
    draw = random.Random(seed)
    return ["".join(draw.choices(CHARACTERS, k=draw.randint(1, longest))) for _ in range(count)]
