import pytest
from hypothesis import given, settings

from segue.errors import DataError
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.symbols import ByteTokenizer, CharacterTokenizer, ListedBytes, collect_characters
from tests.examples import examples
from tests.text.samples import any_text, repaired


def test_characters_by_falling_count_then_first_appearance() -> None:
    tokenizer = collect_characters(["cbaab", "\n"])
    assert [tokenizer.token(index) for index in range(6, tokenizer.size)] == ["<eop>", "b", "a", "c", "\n"]
    assert tokenizer.encode("ab船\n").tolist() == [8, 7, 0, 10]
    assert tokenizer.decode([8, 0, 3, 7, 10]) == "ab\n"
    assert collect_characters(["aab"], min_count=2, specials=()).size == 1
    assert collect_characters(["aab"], max_size=8).size == 8
    with pytest.raises(DataError, match="room for 7"):
        collect_characters(["aab"], max_size=6)
    with pytest.raises(DataError, match="min_count"):
        collect_characters(["aab"], min_count=0)
    with pytest.raises(DataError, match="got '船'"):
        collect_characters(["aab"], specials=()).encode("a船")
    for wrong in (["ab"], ["a", "a"], ["\ud800"], [""]):
        with pytest.raises(DataError, match="single characters"):
            CharacterTokenizer(wrong)


@given(text=any_text)
@settings(max_examples=examples(150), deadline=None)
def test_collected_characters_come_back(text: str) -> None:
    tokenizer = collect_characters([text])
    assert tokenizer.decode(tokenizer.encode(text)) == repaired(text)


def test_bytes_are_their_own_ids() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.size == 262
    assert tokenizer.specials == {"cls": 256, "sep": 257, "pad": 258, "mask": 259, "eod": 260, "eop": 261}
    assert tokenizer.encode("A船").tolist() == list("A船".encode())
    encoding = tokenizer.encode_with_offsets("A船e\u0301")
    assert encoding.starts.tolist() == [0, 1, 1, 1, 2, 3, 3]
    assert tokenizer.decode([0x41, 257, 0xE8, 0x88]) == "A\ufffd"
    assert [tokenizer.token(index) for index in (0x41, 0x20, 0xE8, 256)] == ["A", "<0x20>", "<0xE8>", "<cls>"]


def test_listed_bytes_have_the_ids_of_their_list(tmp_path) -> None:
    tokenizer = ListedBytes([0x88, 0xE8, 0x20, 0xB9, 0x41])
    assert (tokenizer.size, tokenizer.specials) == (5, {})
    encoding = tokenizer.encode_with_offsets("A\n 船\n")
    assert encoding.ids.tolist() == tokenizer.encode("A\n 船\n").tolist() == [4, 2, 1, 0, 3]
    assert encoding.starts.tolist() == [0, 2, 3, 3, 3]
    assert encoding.ends.tolist() == [1, 3, 4, 4, 4]
    assert tokenizer.decode([4, 2, 1, 0]) == "A \ufffd"
    assert [tokenizer.token(index) for index in (2, 4)] == ["<0x20>", "A"]
    assert tokenizer.word_starts().tolist() == [False, True, True, False, False]
    assert tokenizer.encode("").tolist() == []
    assert ListedBytes([10, 65]).encode("A\nA").tolist() == [1, 0, 1]  # a line break that is listed is a token
    with pytest.raises(DataError, match="got 'B'"):
        tokenizer.encode("AB")
    for wrong in ([1, 1], [256], [-1]):
        with pytest.raises(DataError, match="different numbers from 0 to 255"):
            ListedBytes(wrong)
    save_tokenizer(tokenizer, tmp_path)
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()
    assert load_tokenizer(tmp_path).encode("A 船").tolist() == [4, 2, 1, 0, 3]


def test_word_starts() -> None:
    tokenizer = collect_characters(["a1船，.\n \u0301\u200d한あ"], specials=("unk",))
    starts = tokenizer.word_starts()
    begin = {tokenizer.token(index) for index in range(tokenizer.size) if starts[index]}
    assert begin == {"<unk>", "船", "，", ".", "\n", " ", "あ"}
    of_bytes = ByteTokenizer().word_starts()
    assert of_bytes[[0x20, 0x2C, 0xE8, 256]].all()
    assert not of_bytes[[0x41, 0x31, 0x88]].any()
