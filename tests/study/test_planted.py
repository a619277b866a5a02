import pytest

from segue.data.samples import samples
from segue.study.planted import WORDS, planted_rows
from segue.study.schema import PlantedConfig

SETTINGS = PlantedConfig(shortest=30, longest=300, earliest=0.7, classes=2)


@pytest.mark.usefixtures("few_texts")
def test_the_sentence_is_late_and_says_the_class() -> None:
    rows = list(planted_rows(SETTINGS, 40))
    sentence, names, _ = WORDS["English"]
    own = len(sentence.split())
    lengths = []
    for row in rows:
        words = row["text"].split()
        at = row["text"].index(sentence.format(row["label"]))
        before = len(row["text"][:at].split())
        assert before >= round(0.7 * (len(words) - own))
        assert not any(sentence.format(other) in row["text"] for other in names if other != row["label"])
        lengths.append(len(words) - own)
    assert min(lengths) >= 30
    assert max(lengths) <= 300
    assert max(lengths) > 3 * min(lengths)
    assert {row["label"] for row in rows} == set(names[:2])
    assert sum(row["label"] == names[0] for row in rows) == 20


@pytest.mark.usefixtures("few_texts")
def test_rows_are_the_same_each_time_and_others_for_another_seed() -> None:
    assert list(planted_rows(SETTINGS, 5)) == list(planted_rows(SETTINGS, 9))[:5]
    assert list(planted_rows(SETTINGS, 5)) != list(planted_rows(SETTINGS, 5, seed=1))


@pytest.mark.usefixtures("few_texts")
def test_training_documents_may_be_shorter() -> None:
    settings = SETTINGS.model_copy(update={"train_shortest": 5, "train_longest": 20})
    own = len(WORDS["English"][0].split())
    lengths = [len(row["text"].split()) - own for row in planted_rows(settings, 30, training=20)]
    assert all(5 <= length <= 20 for length in lengths[:20])
    assert all(30 <= length <= 300 for length in lengths[20:])
    assert list(planted_rows(SETTINGS, 9, training=5)) == list(planted_rows(SETTINGS, 9))


def test_every_language_of_the_samples_has_its_words() -> None:
    assert {sample.language for sample in samples().values()} == set(WORDS)
