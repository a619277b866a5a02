import pytest
from hypothesis import given, settings

from segue.errors import DataError
from segue.text.words import WordTokenizer, count_words
from tests.examples import examples
from tests.text.samples import any_text, repaired, words

DATA = "b a <unk> a\nc b a\n"


def test_the_vocabulary_of_transformer_xl() -> None:
    """By falling count, then by first appearance; `<eos>` first; `<unk>` is a word of the data and the unknown id."""
    tokenizer = count_words([DATA], specials=(), add_eos=True)
    assert [tokenizer.token(index) for index in range(tokenizer.size)] == ["<eos>", "a", "b", "<unk>", "c"]
    assert tokenizer.specials == {"unk": 3}
    assert tokenizer.encode("a new\n\n<unk> <eos>").tolist() == [1, 3, 0, 0, 3, 3]
    assert tokenizer.decode([1, 3, 0, 0, 2]) == "a <unk>\n\nb"
    assert tokenizer.word_starts().all()


def test_special_tokens_come_first() -> None:
    tokenizer = count_words([DATA, "<sep> <sep> <sep>"])
    assert [tokenizer.token(index) for index in range(8)] == [
        *("<unk>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"),
        "a",
    ]
    assert tokenizer.encode("<sep> <cls> <unk>").tolist() == [0, 0, 0]
    assert tokenizer.encode("a\nb").tolist() == [7, 8]
    assert tokenizer.decode([0, 7, 3, 8]) == "a b"


def test_words_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.text.words.MOST_WORDS", 100)
    assert count_words(f"w{n % 90} " for n in range(200)).size > 90
    with pytest.raises(DataError, match=r"at most 100 different ones; got more\. Train pieces: --kind unigram or bpe"):
        count_words(f"w{n} " for n in range(200))


def test_limits() -> None:
    assert count_words([DATA], specials=(), min_count=2).size == 2
    assert count_words([DATA], specials=("unk",), max_size=3).size == 3
    assert count_words([DATA], max_size=7).size == 7
    with pytest.raises(DataError, match="room for 7 special tokens; got 3"):
        count_words([DATA], max_size=3)
    with pytest.raises(DataError, match="min_count"):
        count_words([DATA], min_count=0)
    with pytest.raises(DataError, match="special tokens must be"):
        count_words([DATA], specials=("unk", "bos"))
    for wrong in (["a b"], [""], ["a", "a"], ["<sep>"], ["a "]):
        with pytest.raises(DataError, match="words of a vocabulary"):
            WordTokenizer(wrong)


def test_lower_case_keeps_offsets() -> None:
    tokenizer = count_words(["İstanbul ΟΔΟΣ the"], lower=True)
    encoding = tokenizer.encode_with_offsets("THE  İSTANBUL\tοδοσ")
    assert encoding.starts.tolist() == [0, 5, 14]
    assert encoding.ends.tolist() == [3, 13, 18]
    assert tokenizer.encode("the").tolist() == tokenizer.encode("The").tolist() != [0]


def test_without_an_unknown_word_the_unknown_is_an_error() -> None:
    tokenizer = count_words(["a b"], specials=())
    assert tokenizer.specials == {}
    with pytest.raises(DataError, match="got 'c'"):
        tokenizer.encode("a c")


@given(text=any_text)
@settings(max_examples=examples(150), deadline=None)
def test_spans_are_the_words_and_newlines(text: str) -> None:
    encoding = words().encode_with_offsets(text)
    found = [text[start:end] for start, end in zip(encoding.starts, encoding.ends, strict=True)]
    assert [word for word in found if word != "\n"] == text.split()
    assert found.count("\n") == text.count("\n")


@given(text=any_text)
@settings(max_examples=examples(100), deadline=None)
def test_known_words_come_back(text: str) -> None:
    tokenizer = count_words([text], specials=("unk",), add_eos=True)
    known = " ".join(word for word in repaired(text).split() if word not in ("<unk>", "<eos>"))
    assert tokenizer.decode(tokenizer.encode(known)) == known
