"""Documents: cut as files are, numbered by line, read no further ahead than asked for."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from segue.data.readers import ReadSettings
from segue.errors import DataError
from segue.infer.documents import SHOWN, Document, TextFiles, TextPart, pools, text_parts
from segue.text.symbols import ByteTokenizer
from segue.text.words import WordTokenizer
from tests.infer.texts import TOKENIZER


def whole(text: str) -> Document:
    return Document(1, text_parts([text]), TOKENIZER, keep_lines=True)


def test_long_texts_are_cut_as_the_reader_of_files_does_it(tmp_path: Path) -> None:
    text = "ab " * 50_000 + "\n" + "中文 字\n" * 30_000 + "天" * 140_000 + "\nend"
    path = tmp_path / "long.txt"
    path.write_text(text, encoding="utf-8")
    from_file = list(TextFiles([path], ReadSettings(document="file")))
    from_text = list(text_parts([text]))
    assert len(from_file) > 4
    assert [part.text for part in from_file] == [part.text for part in from_text]
    assert "".join(part.text for part in from_file) == text
    assert [part.begins for part in from_text] == [True] + [False] * (len(from_text) - 1)


def test_tokens_come_with_their_places_however_they_are_taken() -> None:
    text = "ab 中\n\n文c\n" + "天" * 66_000 + "\nh\n"
    lines = text.split("\n")
    for count in (1, 1000, 10**6):
        document = whole(text)
        place = 0
        if count == 1:
            stretches: Iterator = (document.take(1) for _ in range(40))
        else:
            stretches = iter(lambda document=document, count=count: document.take(count), None)
        for tokens in stretches:
            if not len(tokens):
                break
            assert len(tokens) <= count
            for index, start, end, line in zip(tokens.ids, tokens.starts, tokens.ends, tokens.lines, strict=True):
                assert (start, end) == (place, place + 1)
                assert TOKENIZER.decode([index]) == text[place]
                if place < 30 or place > 65_990:
                    assert line == 1 + text.count("\n", 0, place)
                place += 1
        if count > 1:
            assert place == len(text) == document.characters == document.tokens
            assert [line.number for line in document.lines] == [1, 2, 3, 4, 5]
            assert [line.characters for line in document.lines] == [len(line) + 1 for line in lines[:-1]]
            assert [line.text for line in document.lines] == [(line + "\n")[:SHOWN] for line in lines[:-1]]


def test_bytes_of_a_character_and_words_across_lines() -> None:
    document = Document(1, text_parts(["中\na"]), ByteTokenizer(), keep_lines=False)
    tokens = document.take(99)
    assert list(zip(tokens.starts, tokens.ends, tokens.lines, strict=True)) == [
        (0, 1, 1), (0, 1, 1), (0, 1, 1), (1, 2, 1), (2, 3, 2)]  # fmt: skip
    document = Document(1, text_parts(["one\n\n two"]), WordTokenizer(["one", "two"]), keep_lines=True)
    tokens = document.take(99)
    assert list(zip(tokens.starts, tokens.ends, tokens.lines, strict=True)) == [(0, 3, 1), (6, 9, 3)]
    assert [line.text for line in document.lines] == ["one\n", "\n", " two"]


def test_pools_hold_whole_documents_and_long_ones_come_alone() -> None:
    read = []

    def parts() -> Iterator[TextPart]:
        for number, size in enumerate([3, 4, 5, 1, 40, 2, 2]):
            for place in range(0, size, 2):
                read.append(number)
                yield TextPart("text", "ab"[: min(2, size - place)], place == 0)

    shapes = []
    for pool in pools(parts(), TOKENIZER, limit=8, keep_lines=False):
        shapes.append([document.number for document in pool])
        if pool[0].number == 1:
            assert read.count(3) <= 1, "one document beyond the pool, and a part that shows its end"
        if pool[0].number == 5:
            assert len(pool) == 1
            assert not pool[0].complete
            assert read.count(4) == 5, "as much of the long one as a pool has room for"
            assert sum(len(pool[0].take(3)) for _ in range(20)) == 40
    assert shapes == [[1, 2], [3, 4], [5], [6, 7]]


def test_a_long_document_that_is_left_early_does_not_disturb_the_next() -> None:
    texts = ["a" * 200_000, "中"]
    found = list(pools(text_parts(texts), TOKENIZER, limit=10, keep_lines=False))
    assert [[document.number for document in pool] for pool in found] == [[1], [2]]
    assert found[1][0].take(9).ids.tolist() == TOKENIZER.encode("中").tolist()


def test_surrogates_are_replaced() -> None:
    document = whole("a\ud800b")
    assert document.take(9).ids.tolist() == TOKENIZER.encode("a\ufffdb").tolist()
    assert document.text == "a\ufffdb"


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"body": "x\\ny"}\n{"body": "中"}\n', encoding="utf-8")
    files = TextFiles([tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "a.txt"], ReadSettings(field="body"))
    assert [part.text for part in files] == ["one", "two\nthree", "x\ny", "中", "one", "two\nthree"]
    assert files.bytes_read == files.bytes_total == sum(file.size for file in files.files)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt must exist"):
        TextFiles([tmp_path / "nowhere.txt"])
    with pytest.raises(DataError, match="got none"):
        TextFiles([])
    with pytest.raises(DataError, match="once"):
        TextFiles(["-", "-"])
    with pytest.raises(DataError, match="parquet"):
        TextFiles(["-"], standard_input="parquet")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    with pytest.raises(DataError, match=r"must contain text; got none in .*empty\.txt"):
        list(TextFiles([empty]))
    chinese = tmp_path / "chinese.txt"
    chinese.write_bytes(("中文字" * 200).encode("gb18030"))
    with pytest.raises(DataError, match=r"chinese\.txt must be text in utf-8"):
        list(TextFiles([chinese]))
    assert "".join(part.text for part in TextFiles([chinese], ReadSettings(encoding="gb18030"))) == "中文字" * 200
    strict = Document(1, text_parts(["one x"]), WordTokenizer(["one"], specials=()), keep_lines=False)
    with pytest.raises(DataError, match=r"document 1 \(text\): every word"):
        strict.take(1)


def test_line_starts_agree_with_a_prepared_store(tmp_path: Path) -> None:
    from segue.data.encode import TextBatch, TextItem, encode_batch

    text = "ab中\n\n文 c\nd"
    lines = ["ab中\n", "\n", "文 c\n", "d"]
    item = TextItem(0, text, [len(line) for line in lines], True, True)
    stored = encode_batch(TOKENIZER, TextBatch([item], 0), stores=1).encoded[0].line_starts
    tokens = whole(text).take(99)
    assert np.flatnonzero(np.diff(tokens.lines, prepend=0)).tolist() == stored.tolist()
