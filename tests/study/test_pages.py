"""The pages of the ready studies: one in each language, with the same figures, of the study that is there now."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from segue.study.load import open_study, ready_studies
from segue.study.schema import StudyConfig

DOCS = Path(__file__).parents[2] / "docs"
STUDIES = DOCS / "studies"
PAGES = sorted(path.stem for path in STUDIES.glob("*.md") if "." not in path.stem and path.stem != "README")
LANGUAGES = ("", ".zh-CN")
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def text_of(name: str, language: str) -> str:
    return (STUDIES / f"{name}{language}.md").read_text(encoding="utf-8")


def test_pages_are_of_ready_studies() -> None:
    assert set(PAGES) <= set(ready_studies())


@pytest.mark.parametrize("name", ready_studies())
def test_the_words_of_a_study_are_translated(name: str) -> None:
    words, study = runpy.run_path(str(DOCS / "studies.py"))["WORDS"], open_study(name).settings
    about = [variant.about for variant in study.variants if variant.about]
    assert {study.title, study.question, *study.limits, *about} <= words.keys()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_index_names_every_study(language: str) -> None:
    """With a link where there is a report, and with the command where there is none."""
    index = text_of("README", language)
    for name in ready_studies():
        assert f"({name}{language}.md)" in index if name in PAGES else f"`segue study {name}" in index, name
    assert f"studies/README{language}.md" in (DOCS / f"study{language}.md").read_text(encoding="utf-8")


def test_the_site_leads_to_every_page() -> None:
    site = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"- studies/([\w-]+)\.md", site)) == {"README", *PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_have_the_same_figures(name: str) -> None:
    english, chinese = (
        [NUMBER.findall(line) for line in text_of(name, language).splitlines() if line.startswith("|")]
        for language in LANGUAGES
    )
    assert english == chinese
    assert sum(map(len, english)) > 30


@pytest.mark.parametrize("name", PAGES)
def test_the_translation_is_that_of_the_report(name: str) -> None:
    """Whoever changes a phrase of the report must translate it, too."""
    made = runpy.run_path(str(DOCS / "studies.py"))
    lines = text_of(name, "").splitlines()
    report = "\n".join([lines[0], *lines[5:]])  # the title, then what follows the links
    assert made["page"](made["chinese"](report), name=name, other=f"{name}.md") == text_of(name, ".zh-CN")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_complete_and_of_the_study_as_it_is(name: str) -> None:
    text = text_of(name, "")
    assert "Not complete" not in text
    assert "missing" not in text
    (settings,) = re.findall(r"^```\n(title = .*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    then, now = StudyConfig.model_validate(tomllib.loads(settings)), open_study(name).settings  # without defaults
    assert then == now
    assert len(now.seeds) >= 3
