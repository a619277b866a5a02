"""Outside suites: n-grams against their definition with loops, and every measure on models and data made here."""

import json
import lzma
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import suite_measures, suites
from benchmarks.kneser_ney import KneserNey, Vocabulary, words
from benchmarks.suite_data import SUITES, Suite

from segue.infer.text_model import load_text_model
from segue.model import Batch
from tests.tasks.models import CHINESE, ENGLISH, write_model


def kneser_ney(symbols: list[int], size: int, order: int, context: list[int], symbol: int) -> float:
    """Interpolated, with three discounts, by dictionaries: Chen and Goodman 1998, section 4.1.6."""
    grams = {n: [tuple(symbols[i : i + n]) for i in range(len(symbols) - n + 1)] for n in range(1, order + 1)}
    probability = 1 / size
    for n in range(1, order + 1):
        if len(context) < n - 1:
            break
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        if n == order:
            for gram in grams[n]:
                counts[gram] += 1
        else:
            for gram in set(grams[n + 1]):
                counts[gram[1:]] += 1
        times = [sum(count == k for count in counts.values()) for k in range(5)]
        discounts = [0.0, 0.5, 1.0, 1.5]
        if all(times[1:]):
            y = times[1] / (times[1] + 2 * times[2])
            found = (k - (k + 1) * y * times[k + 1] / times[k] for k in (1, 2, 3))
            discounts = [0.0, *(min(max(0.0, one), k) for k, one in enumerate(found, start=1))]
        before = tuple(context[len(context) - n + 1 :]) if n > 1 else ()
        after = {gram: count for gram, count in counts.items() if gram[:-1] == before}
        total = sum(after.values())
        if not total:
            continue
        own = after.get((*before, symbol), 0)
        left_over = sum(discounts[min(count, 3)] for count in after.values())
        probability = (own - discounts[min(own, 3)] + left_over * probability) / total
    return probability


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_ngrams_are_their_definition_and_sum_to_one(order: int) -> None:
    text = (ENGLISH * 2)[:400] + ENGLISH[100:200]
    vocabulary = Vocabulary(text)
    symbols = vocabulary.encode(text)
    model = KneserNey(symbols, vocabulary_size=vocabulary.size, order=order)
    for context in ("", "the", "was cle", "zzq", "e"):
        before = vocabulary.encode(context).tolist()
        total = 0.0
        for symbol in range(vocabulary.size):
            found = math.exp(model.log_probabilities(np.array([*before, symbol]))[-1])
            assert found == pytest.approx(
                kneser_ney(symbols.tolist(), vocabulary.size, order, before, symbol), rel=1e-9
            )
            total += found
        assert total == pytest.approx(1.0, abs=1e-9)


def test_texts_side_by_side_know_nothing_of_each_other() -> None:
    vocabulary = Vocabulary(ENGLISH)
    model = KneserNey(vocabulary.encode(ENGLISH), vocabulary_size=vocabulary.size, order=4)
    one, other = vocabulary.encode("The room"), vocabulary.encode("was clean")
    both = model.log_probabilities(np.concatenate([one, other]), known=np.array([*range(len(one)), *range(len(other))]))
    alone = np.concatenate([model.log_probabilities(one), model.log_probabilities(other)])
    np.testing.assert_array_equal(both, alone)


def test_words_and_rare_ones() -> None:
    assert list(words("He didn't go.\n我们走")) == ["He", "didn't", "go", ".", "\n", "我们走"]
    vocabulary = Vocabulary(["a", "a", "b"], at_least=2)
    assert vocabulary.encode(["a", "b", "c"]).tolist() == [1, 0, 0]


# --------------------------------------------------------------------------------------------------------------- models


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites")
    for objective in ("causal", "permutation", "masked"):
        write_model(folder / objective, objective=objective)
        write_model(folder / f"{objective}-zh", objective=objective, language="chinese")
    pairs = [{"UID": "order", "sentence_good": line, "sentence_bad": line[::-1]} for line in ENGLISH.splitlines()]
    passages = [{"text": line.removesuffix(".")} for line in ENGLISH.splitlines()]
    gaps = [
        {"content": "他想给妻子买#idiom#，很高兴。", "candidates": ["一件大衣", "第一季度", "踢足球的"], "answer": 0},
        {"content": "两个年轻人正在#idiom#", "candidates": ["浪费时间", "公园里踢"], "answer": 1},
    ]
    data = folder / "data"
    for name, rows in (("blimp", pairs), ("lambada_test", passages), ("chid_test_public", gaps[:1] * 3)):
        write(data / "suites" / f"{name}.jsonl.xz", "".join(json.dumps(row) + "\n" for row in rows))
    write(data / "pretraining" / "en" / "a.txt.xz", ENGLISH * 3)
    write(data / "wikitext2" / "train.txt.xz", ENGLISH * 3)
    write(data / "wikitext2" / "valid.txt.xz", "".join(ENGLISH.splitlines(keepends=True)[:3]))
    write(data / "zh_people_daily_1998" / "plain.valid.txt.xz", CHINESE)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["suites", *map(str, arguments)])
    suites.main()


def suite(name: str) -> Suite:
    return next(one for one in SUITES if one.name == name)


def test_everything_is_measured_once(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--models", work / "causal", work / "permutation", work / "masked", "--data", work / "data")
    run(monkeypatch, *arguments, "--results", tmp_path)
    output, errors = capsys.readouterr()
    assert "zhoblimp: left out" in errors
    page = (tmp_path / "suites.md").read_text(encoding="utf-8")
    assert page in output
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in page.splitlines() if line.startswith("|")}
    columns = [cell.strip() for cell in rows[""]]
    assert columns == ["blimp", "lambada", "chid", "wikitext2", "people-daily"]
    assert "random orders" in rows["permutation"][0]
    assert "ppl" in rows["causal"][1]
    assert "bpc" in rows["gzip"][3]
    assert "after the training text" in rows["xz"][3]
    assert "5-grams of words" in rows["kneser-ney"][3]
    assert "masked on lambada: left out" in page
    assert "causal on chid: left out" in page
    assert "the tokeniser spells it in bytes" in page
    files = sorted(path.name for path in tmp_path.glob("*.json"))
    assert len(files) == 6 * 5
    result = json.loads((tmp_path / files[0]).read_text(encoding="utf-8"))
    assert {"commit", "hardware", "command", "metrics", "weights"} <= set(result)
    run(monkeypatch, *arguments, "--results", tmp_path)
    output, errors = capsys.readouterr()
    assert "..." not in errors
    assert errors.count("kept") == len(files)
    torch.manual_seed(1)
    (tmp_path / "other").mkdir()
    changed = write_model(tmp_path / "other" / "causal", objective="causal", width=16)
    run(
        monkeypatch, "--models", changed, "--data", work / "data", "--results", tmp_path, "--no-baselines",
        "--suites", "blimp",
    )  # fmt: skip
    assert "causal, blimp ..." in capsys.readouterr()[1]


@pytest.mark.parametrize("objective", ["causal", "permutation"])
def test_last_words_one_at_a_time(work: Path, objective: str) -> None:
    """Each token of the word after the passage and the tokens of the word before it."""
    loaded = load_text_model(work / objective)
    texts = [line.removesuffix(".") for line in ENGLISH.splitlines()]
    total, right = 0.0, 0
    model = loaded.model.adjusted(memory=None) if loaded.model.config.memory else loaded.model
    for text in texts:
        whole = loaded.tokenizer.encode(text).tolist()
        begin = len(loaded.tokenizer.encode(text[: text.rindex(" ")]))
        ids = [loaded.tokenizer.specials["eod"], *whole]
        likeliest = True
        for place in range(begin + 1, len(ids)):
            read = torch.tensor([ids[: place + (objective == "permutation")]])
            batch = Batch(ids_BQ=read)
            if objective == "permutation":
                # Tokens of the passage see each other; those of the word see what is before them.
                at = torch.arange(place + 1)
                visible_QQ = (at[None, :] <= begin) | ((at[None, :] <= at[:, None]) & (at[:, None] > begin))
                visible_QQ[:, place] = False
                batch = Batch(ids_BQ=read, visible_BQQ=visible_QQ[None], predicted_BP=torch.tensor([[place]]))
            with torch.no_grad():
                output = model(batch).output
                hidden = output.hidden_BQD[0, -1] if objective == "causal" else output.predicted_BPD[0, 0]
                logits = model.logits(hidden).log_softmax(dim=-1)
            total += float(logits[ids[place]])
            likeliest &= int(logits.argmax()) == ids[place]
        right += likeliest
    found = suite_measures.last_words(loaded, texts)
    assert found["accuracy"] == right / len(texts)
    assert math.log(found["perplexity of the word"]) == pytest.approx(-total / len(texts), rel=1e-5)


@pytest.mark.parametrize("objective", ["causal", "permutation", "masked"])
def test_gaps_are_filled_by_the_likelier_candidate(work: Path, objective: str) -> None:
    loaded = load_text_model(work / f"{objective}-zh")
    found = suite_measures.measure_model(loaded, suite("chid"), work / "data", limit=2)
    assert found["gaps"] == 2
    assert found["candidates"] == 3
    assert found["accuracy"] in (0.0, 1.0)  # the two are the same


def test_a_gap_is_scored_by_its_own_tokens(work: Path) -> None:
    """In a permutation model that is what all of the text gives, less what all but the gap gives."""
    loaded = load_text_model(work / "permutation-zh")
    text, span = "他想给妻子买一件新大衣。", (6, 8)
    (found,) = suite_measures._gap_scores(loaded, [text], [span])
    encoding = loaded.tokenizer.encode_with_offsets(text)
    ids = torch.tensor([[loaded.tokenizer.specials["eod"], *encoding.ids.tolist()]])
    inside = [n + 1 for n in range(len(encoding.ids)) if encoding.ends[n] > 6 and encoding.starts[n] < 8]
    order = torch.tensor([[n for n in range(ids.shape[1]) if n not in inside] + inside])
    model = loaded.model.adjusted(memory=None) if loaded.model.config.memory else loaded.model
    with torch.no_grad():
        nll = model(suite_measures.order_batch(ids, order)).nll
    assert found == pytest.approx(-float(nll[0, inside].sum()), rel=1e-5)


def test_bits_of_ngrams_and_compressors(work: Path) -> None:
    data = work / "data"
    ngrams = suite_measures.measure_ngrams(suite("wikitext2"), data, limit=None)
    assert 0 < ngrams["5-grams of characters"] < 1  # the text is part of what was read
    assert ngrams["bits per character"] == ngrams["5-grams of characters"]
    assert ngrams["training characters"] == 3 * len(ENGLISH)
    gzip = suite_measures.measure_compressor("gzip", suite("wikitext2"), data, limit=None)
    assert 2 < gzip["bits per character"] < 8
    xz = suite_measures.measure_compressor("xz", suite("wikitext2"), data, limit=None)
    assert xz["after the training text"] < xz["bits per character"]
    with pytest.raises(suite_measures.NotMeasuredError, match="no training text"):
        suite_measures.measure_ngrams(suite("people-daily"), data, limit=None)
    pairs = suite_measures.measure_ngrams(suite("blimp"), data, limit=None)
    assert pairs["accuracy"] == 1.0


def test_a_suite_that_does_not_exist_is_named(work: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unknown suites: glue"):
        run(monkeypatch, "--data", work / "data", "--results", tmp_path, "--suites", "glue")


def test_runs_are_named_by_their_folders() -> None:
    assert suites.short_name("/a/runs/xlnet_mini/best") == "xlnet-mini-best"
    assert suites.short_name("xlnet/xlnet-base-cased") == "xlnet-base-cased"
