"""The model card: what is known is in it, what is not is said to be unknown, what people wrote stays."""

import pytest

from segue.checkpoint.card import Facts, Metric, TrainingData, make_card, updated_card
from segue.checkpoint.files import CARD
from segue.checkpoint.folder import save
from segue.errors import CheckpointError
from segue.model import LanguageModel
from tests.tiny import MODELS

yaml = pytest.importorskip("yaml")
FACTS = Facts(
    data=TrainingData(name="wiki.store", tokens=103_227_021, sha256="ab" * 32),
    metrics=[Metric(name="validation loss", value=3.14159265, step=12000)],
    command="segue pretrain wiki.toml --out run",
    licence="apache-2.0",
    languages=["zh", "no"],
)


def _front(card: str) -> dict[str, object]:
    return yaml.safe_load(card.split("---\n")[1])


def test_all_facts() -> None:
    card = make_card(MODELS["xlnet-base"], 1234567, FACTS)
    assert _front(card) == {
        "license": "apache-2.0",
        "language": ["zh", "no"],
        "tags": ["segue", "permutation-language-model", "xlnet"],
        "library_name": "segue",
    }
    for fact in (
        "1,234,567",
        "wiki.store: 103,227,021 tokens",
        f"`{'ab' * 32}`",
        "| validation loss | 3.14159 | 12,000 |",
        "    segue pretrain wiki.toml --out run\n",
        "## Licence\n\napache-2.0\n",
        "| memory | 6 tokens |",
    ):
        assert fact in card
    assert "nknown" not in card


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_card_without_facts(name: str) -> None:
    card = make_card(MODELS[name], 10, Facts())
    assert _front(card)["license"] == "unknown"
    assert "language" not in _front(card)
    assert card.count("Unknown.") == 4


def test_facts_cannot_break_the_card() -> None:
    facts = Facts(
        data=TrainingData(name="a | b\n---\n# c", tokens=1, sha256="0"),
        metrics=[Metric(name="x | y", value=float("nan"))],
        command="segue\npretrain",
        origin="elsewhere\n## Licence",
    )
    card = make_card(MODELS["gpt"], 1, facts)
    assert "\n# c" not in card
    assert "| x \\| y | nan |  |" in card
    assert "    segue pretrain\n" in card
    assert card.count("\n## Licence") == 1


def test_an_update_keeps_what_people_wrote() -> None:
    mine = "---\nlicense: unknown\nlanguage:\n- en\n- fr\ndatasets:\n- mine\n---\n# My model\n\n---\n\nWords.\n"
    card = updated_card(mine, licence="mit", languages=["zh"])
    assert card.endswith("---\n# My model\n\n---\n\nWords.\n")
    assert _front(card) == {"license": "mit", "language": ["zh"], "datasets": ["mine"], "library_name": "segue"}
    assert updated_card(card) == card


def test_a_card_without_front_matter_gets_one() -> None:
    assert updated_card("# Mine\n") == "---\nlibrary_name: segue\n---\n# Mine\n"


def test_a_licence_that_was_unknown() -> None:
    card = updated_card(make_card(MODELS["gpt"], 1, Facts()), licence="mit")
    assert "## Licence\n\nmit\n" in card
    assert _front(card)["license"] == "mit"


@pytest.mark.parametrize("licence", ["MIT License", "mit\nlicense: gpl", "", "a" * 100])
def test_licences_are_identifiers(licence: str) -> None:
    with pytest.raises(CheckpointError, match="a licence must be a lower-case identifier"):
        updated_card("", licence=licence)


@pytest.mark.parametrize("language", ["English", "e", "en\n- fr", "中文"])
def test_languages_are_codes(language: str) -> None:
    with pytest.raises(CheckpointError, match="a language must be a code"):
        updated_card("", languages=[language])


def test_a_saved_folder_has_its_card(tmp_path) -> None:
    model = LanguageModel(MODELS["gpt"])
    save(model, tmp_path / "model", facts=FACTS)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert (tmp_path / "model" / CARD).read_text() == make_card(MODELS["gpt"], parameters, FACTS)
