"""`segue generate` and `segue infill` as a user meets them: what they write is what a Session writes."""

import io
import json
import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

import segue as library
from segue.checkpoint.folder import save
from segue.cli.writing import Screen
from segue.config import changed
from segue.infer.infill import infill_text
from segue.infer.sampling import SamplingSettings
from segue.infer.session import Session
from segue.infer.text_model import load_text_model
from segue.text.files import save_tokenizer
from tests.cli.test_pretrain import segue
from tests.infer.texts import WITHOUT_EOD
from tests.tasks.models import write_model
from tests.tiny import MODELS, noisy

ENGLISH, CHINESE = "Two young men are playing", "他出生于北京，后来"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("写")
    write_model(folder / "xl", objective="causal")
    write_model(folder / "xlnet", language="chinese")
    write_model(folder / "bert", objective="masked")
    shutil.copytree(folder / "xl", folder / "tuned" / "best")
    (folder / "tuned" / "best" / "task.toml").write_text('task = "generate"\n')
    save_tokenizer(WITHOUT_EOD, folder / "characters")
    size = {"size": WITHOUT_EOD.size}
    model = noisy(changed(MODELS["transformer-xl-enwik8-base"], vocabulary=size)).float()
    save(model, folder / "no-eod", tokenizer=folder / "characters")
    return folder


def opened(place: Path, name: str = "xl") -> Session:
    return library.open(place / name)


def typed(data: bytes, *arguments: object, code: int = 0) -> str:
    """The command with something on its standard input."""
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")):
        return segue("generate", *arguments, code=code)


def ids(output: str) -> list[int]:
    return [row["id"] for row in map(json.loads, output.splitlines()) if row["id"] is not None]


def whole(text: str) -> str:
    """As it is shown: it ends with a newline."""
    return text if text.endswith("\n") else text + "\n"


# --------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(("name", "prompt"), [("xl", ENGLISH), ("xlnet", CHINESE)])
def test_it_writes_what_a_session_writes(place: Path, name: str, prompt: str) -> None:
    output = segue("generate", place / name, prompt, "--max-tokens", 30, "--seed", 3)
    expected = "".join(opened(place, name).stream(prompt, max_tokens=30, sampling=SamplingSettings(seed=3)))
    assert output == whole(expected)
    options = ("--temperature", 0.8, "--top-k", "all", "--top-p", 0.9, "--repetition-penalty", 1.3, "--stop", "e")
    options += ("--min-p", 0.001, "--typical", 0.95, "--memory-length", 5)
    settings = SamplingSettings(
        temperature=0.8, top_k=None, top_p=0.9, repetition_penalty=1.3, min_p=0.001, typical=0.95
    )
    session = library.open(place / name, memory_length=5)
    expected = "".join(session.stream(prompt, max_tokens=200, sampling=settings, stop=["e"]))
    assert segue("generate", place / name, prompt, *options) == whole(expected)


def test_every_piece_goes_out_as_soon_as_it_is_certain(place: Path) -> None:
    class Watched(io.StringIO):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    flushed: list[str] = []
    with mock.patch.object(sys, "stdout", Watched()):
        screen = Screen()
        for text in ("a", "", "中"):
            screen.show(text)
    assert flushed == ["a", "a中"]
    shown: list[str] = []
    with mock.patch.object(Screen, "show", lambda _, text: shown.append(text)):
        segue("generate", place / "xl", ENGLISH, "--max-tokens", 12)
    pieces = list(opened(place).stream(ENGLISH, max_tokens=12))
    assert len(pieces) > 6
    assert [text for text in shown if text][: len(pieces)] == pieces


def test_a_terminal_is_shown_characters_and_given_no_commands() -> None:
    terminal = io.StringIO()
    with mock.patch.object(sys, "stdout", terminal), mock.patch.object(terminal, "isatty", return_value=True):
        screen = Screen()
        screen.show("a\x1b[2J\r\tb\x9b\n")
        screen.end_line()
    assert terminal.getvalue() == "a�[2J�\tb�\n"


def test_a_prompt_from_standard_input(place: Path) -> None:
    """In several reads, in any encoding; the newline at its end is part of it."""
    text = "他出生于北京，后来随父母搬到上海。\n" * 700
    expected = segue("generate", place / "xlnet", text, "--max-tokens", 9)
    assert typed(text.encode(), place / "xlnet", "-", "--max-tokens", 9) == expected
    data = text.encode("gb18030")
    assert typed(data, place / "xlnet", "-", "--max-tokens", 9, "--encoding", "gb18030") == expected
    message = typed(data, place / "xlnet", "-", "--max-tokens", 9, code=2)
    assert "standard input must be text in utf-8" in message
    assert "--encoding gb18030" in message


def test_of_a_long_prompt_only_the_end_is_read(place: Path, tmp_path: Path) -> None:
    session = opened(place)
    long = (ENGLISH + " in the park. ") * 100
    skipped, total = session.feed(long), session.tokens_read
    assert skipped == total - session.reach > 100
    text = "".join(session.stream(max_tokens=8))
    assert typed(long.encode(), place / "xl", "-", "--max-tokens", 8) == whole(text)
    told = typed(b"/load nothing\n", place / "xl", long, "--chat", code=2)
    assert told.startswith(f"Skipped the first {skipped:,} of {total:,} tokens of the prompt: ")
    assert f"at most the last {session.reach:,}." in told.replace("\n", " ")
    other = opened(place)
    other.score(long)  # which reads all of it
    assert "".join(other.stream(max_tokens=8)) == text


def test_halves_of_characters_in_arguments_become_replacements(place: Path) -> None:
    outputs = {segue("generate", place / "xl", f"a{bad}b", "--max-tokens", 5, "--json") for bad in "\udcff\ufffd"}
    assert len(outputs) == 1


def test_without_a_prompt_it_begins_a_document(place: Path) -> None:
    assert segue("generate", place / "xl", "--max-tokens", 8) == whole("".join(opened(place).stream(max_tokens=8)))
    message = segue("generate", place / "no-eod", code=2)
    assert "Give a prompt" in message
    assert segue("generate", place / "no-eod", "ab", "--max-tokens", 3)


# --------------------------------------------------------------------------------------------------- settings, numbers


def test_tokens_and_their_log_probabilities(place: Path) -> None:
    settings = SamplingSettings(top_log_probabilities=2)
    expected = [one for one in opened(place).write(ENGLISH, max_tokens=7, sampling=settings) if one.id is not None]
    output = segue("generate", place / "xl", ENGLISH, "--max-tokens", 7, "--json", "--alternatives", 2)
    rows = [row for row in map(json.loads, output.splitlines()) if row["id"] is not None]
    assert [(row["id"], row["token"]) for row in rows] == [(one.id, one.token) for one in expected]
    for row, one in zip(rows, expected, strict=True):
        assert row["log_probability"] == pytest.approx(one.log_probability)
        assert [other["token"] for other in row["alternatives"]] == [token for token, _ in one.alternatives]
    table = segue("generate", place / "xl", ENGLISH, "--max-tokens", 7, "--log-probabilities")
    total = sum(one.log_probability for one in expected)
    assert f"7 tokens, log-probability {total:.3f}" in table
    for one in expected:
        assert re.search(rf"{re.escape(one.token)} +{one.log_probability:.3f}", table)


def test_biases_by_token_text_and_id(place: Path) -> None:
    tokenizer = opened(place).tokenizer
    (period,) = (index for index in range(tokenizer.size) if tokenizer.token(index) == ".")
    for name in (".", f"#{period}"):
        output = segue("generate", place / "xl", ENGLISH, "--max-tokens", 4, "--json", "--bias", f"{name}=60")
        assert ids(output) == [period] * 4
    expected = "".join(
        opened(place).stream(ENGLISH, max_tokens=20, sampling=SamplingSettings(logit_bias={period: -float("inf")}))
    )
    assert segue("generate", place / "xl", ENGLISH, "--max-tokens", 20, "--bias", ".=-inf") == whole(expected)


def test_one_of_some_choices(place: Path) -> None:
    choices = ("--choice", " football", "--choice", " in the park")
    assert segue("generate", place / "xl", ENGLISH, *choices) in (" football\n", " in the park\n")
    output = segue("generate", place / "xl", ENGLISH, *choices, "--bias", "▁in=90", "--greedy")
    assert output in (" football\n", " in the park\n")


def test_eight_bits(place: Path) -> None:
    expected = "".join(library.open(place / "xl", int8=True).stream(ENGLISH, max_tokens=9))
    assert segue("generate", place / "xl", ENGLISH, "--max-tokens", 9, "--int8") == whole(expected)


def test_samples_of_one_prompt(place: Path) -> None:
    command = ("generate", place / "xl", ENGLISH, "--max-tokens", 9, "--count", 18, "--seed", 7)
    output = segue(*command)
    assert segue(*command) == output
    session = opened(place)
    session.feed(ENGLISH)
    expected = ""
    for number in range(18):
        text = "".join(session.fork().stream(max_tokens=9, sampling=SamplingSettings(seed=7 + number)))
        expected += f"--- {number + 1}\n" + (whole(text) if text else "")
    assert output == expected
    rows = [json.loads(line) for line in segue(*command, "--json").splitlines()]
    assert {row["sample"] for row in rows} == set(range(1, 19))
    third = "".join(row["text"] for row in rows if row["sample"] == 3)
    assert third == "".join(session.fork().stream(max_tokens=9, sampling=SamplingSettings(seed=9)))


def test_beam_search_prints_the_best_first(place: Path) -> None:
    session = opened(place)
    session.feed(ENGLISH)
    found = session.search(beam=4, count=3, max_tokens=5, length_penalty=0.7)
    command = ("generate", place / "xl", ENGLISH, "--beam", 4, "--max-tokens", 5, "--length-penalty", 0.7)
    rows = [json.loads(line) for line in segue(*command, "--n-best", 3, "--json").splitlines()]
    assert [tuple(row["tokens"]) for row in rows] == [one.tokens for one in found]
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    output = segue(*command, "--n-best", 3)
    heads = [float(score) for score in re.findall(r"^--- \d: log p -[\d.]+, score (-[\d.]+)$", output, re.MULTILINE)]
    assert heads == [round(one.score, 3) for one in found]
    assert segue(*command) == whole(found[0].text)


# ------------------------------------------------------------------------------------------------------ files, Ctrl-C


def test_a_saved_session_goes_on(place: Path, tmp_path: Path) -> None:
    greedy = ("--greedy", "--json")
    together = ids(segue("generate", place / "xl", ENGLISH, "--max-tokens", 12, *greedy))
    file = tmp_path / "new" / "a.session"
    first = ids(segue("generate", place / "xl", ENGLISH, "--max-tokens", 5, *greedy, "--save", file))
    second = ids(segue("generate", place / "xl", "--max-tokens", 7, *greedy, "--load", file))
    assert first + second == together
    message = segue("generate", place / "xlnet", "--load", file, code=2)
    assert "must be a session of the same model" in message


class Pressed:
    """Shows what a Screen shows, and presses Ctrl-C at the third text."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, text: str) -> None:
        if text:
            self.shown.append(text)
            if len(self.shown) == 3:
                signal.raise_signal(signal.SIGINT)


def test_an_interrupt_saves_what_was_written(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.session"
    pressed = Pressed()
    with mock.patch.object(Screen, "show", lambda _, text: pressed(text)):
        segue("generate", place / "xl", ENGLISH, "--greedy", "--json", "--save", file, code=130)
    first = ids("".join(pressed.shown))
    assert len(first) == 3
    rest = ids(segue("generate", place / "xl", "--max-tokens", 4, "--greedy", "--json", "--load", file))
    assert first + rest == ids(segue("generate", place / "xl", ENGLISH, "--max-tokens", 7, "--greedy", "--json"))


# ---------------------------------------------------------------------------------------------------------------- chat


def replies(session: Session, lines: list[str], *, seed: int = 0, max_tokens: int = 10) -> str:
    """What a chat is by its definition."""
    said = ""
    for number, line in enumerate(lines):
        settings = SamplingSettings(seed=seed + number)
        session.feed(line + "\n")
        written = list(session.write(max_tokens=max_tokens, sampling=settings, stop=["\n"]))
        said += "".join(one.text for one in written) + "\n"
        if not any(one.token == "\n" for one in written):
            session.feed("\n")
    return said


@pytest.mark.parametrize(("name", "lines"), [("xl", ["Hello.", "/x", "Yes?"]), ("xlnet", ["你好。", "买什么？"])])
def test_a_chat_in_a_pipe(place: Path, name: str, lines: list[str]) -> None:
    data = "".join(("/" + line if line.startswith("/") else line) + "\n" for line in lines).encode()
    output = typed(data, place / name, "--chat", "--max-tokens", 10, "--seed", 4)
    assert output == replies(opened(place, name), lines, seed=4)
    session = opened(place, name)
    session.feed("A. \n")
    assert typed(data.rstrip(), place / name, "A. \n", "--chat", "--max-tokens", 10) == replies(session, lines)


def test_a_reply_ends_with_its_line(place: Path) -> None:
    newline = ("--bias", "\n=90", "--chat")
    assert typed(b"Hello.\nYes?\n", place / "xl", *newline) == "\n\n"


def test_commands_of_a_chat(place: Path, tmp_path: Path) -> None:
    command = (place / "xl", "--chat", "--max-tokens", 6, "--greedy")
    file = tmp_path / "a.session"
    output = typed(f"One.\n/save {file}\nTwo.\n/reset\nOne.\n/load {file}\nTwo.\n/help\n/what\n".encode(), *command)
    first, second, again, loaded = output.splitlines()
    assert (first, second) == (again, loaded)
    assert output.splitlines()[:2] == typed(b"One.\nTwo.\n", *command).splitlines()
    told = typed(
        f"One.\n/save {file}\n/reset\n/load {file}\n/load {tmp_path}/none\n".encode(), *command, "--replace", code=2
    )
    saved, forgot, loaded, mistake = told.splitlines()
    count = re.fullmatch(r"Saved the session, (\d+) tokens, in .*a\.session\.", saved)
    assert count is not None
    assert forgot == f"Session reset, {count[1]} tokens forgotten."
    assert loaded == f"Loaded the session from {file}, {count[1]} tokens."
    assert "a saved session must be a file" in mistake
    assert "must not exist yet" in typed(f"/save {file}\n".encode(), *command, code=2)
    typed(f"/load {file}\n/reset\n/save {file}\n".encode(), *command)
    assert "must not exist yet" in typed(b"One.\n", *command, "--save", file, code=2)
    typed(b"One.\n", *command, "--save", file, "--replace")
    assert typed(b"Two.\n", *command, "--load", file).splitlines() == [second]


def test_ctrl_c_stops_a_reply_and_keeps_the_session(place: Path) -> None:
    pressed = Pressed()
    with mock.patch.object(Screen, "show", lambda _, text: pressed(text)):
        typed(b"One.\nTwo.\n", place / "xl", "--chat", "--max-tokens", 20, "--bias", "\n=-inf")
    tokenizer = opened(place).tokenizer
    (newline,) = tokenizer.encode("\n").tolist()
    session = opened(place)
    settings = SamplingSettings(logit_bias={newline: -float("inf")})
    session.feed("One.\n")
    first: list[str] = []
    for one in session.write(max_tokens=20, sampling=settings):
        first += [one.text] if one.text else []
        if len(first) == 3:
            break
    session.feed("\nTwo.\n")
    second = "".join(session.stream(max_tokens=20, sampling=replace(settings, seed=1)))
    assert "".join(pressed.shown) == "".join(first) + "\n" + second + "\n"


# --------------------------------------------------------------------------------------------------------- infilling


def test_gaps_are_filled_and_marked(place: Path) -> None:
    text = "他出生于___，后来___搬到上海。"
    command = (
        "infill",
        place / "xlnet",
        text,
        "--length",
        "2,3",
        "--order",
        "surest_first",
        "--seed",
        1,
        "--top-k",
        40,
    )
    source = load_text_model(place / "xlnet")
    found = infill_text(
        source.model,
        source.tokenizer,
        text,
        lengths=[2, 3],
        order="surest_first",
        settings=SamplingSettings(seed=1),
    )
    assert found.gaps != infill_text(source.model, source.tokenizer, text, lengths=[2, 3], order="surest_first").gaps
    row = json.loads(segue(*command, "--json"))
    assert (row["text"], tuple(row["gaps"])) == (found.text, found.gaps)
    assert [one["id"] for one in row["tokens"]] == [one.token for one in found.result.filled]
    output = segue(*command)
    one, two = (gap.lstrip(" ") for gap in found.gaps)
    assert output.startswith(found.text.replace(one, f"[{one}]", 1)[: 4 + len(one)])
    assert f"[{two}]搬到上海。" in output
    assert f"log-probability {found.result.log_probability:.3f}, filled surest first" in output


def test_gaps_get_the_likeliest_tokens_unless_others_are_asked_for(place: Path) -> None:
    command = (
        "infill",
        place / "xlnet",
        "他出生于___。",
        "--length",
        3,
        "--order",
        "surest_first",
        "--alternatives",
        1,
    )
    for options in ((), ("--seed", 7), ("--greedy",)):
        for one in json.loads(segue(*command, *options, "--json"))["tokens"]:
            assert one["log_probability"] == one["alternatives"][0]["log_probability"]
    drawn = json.loads(segue(*command, "--temperature", 5, "--top-k", "all", "--json"))["tokens"]
    assert any(one["log_probability"] < one["alternatives"][0]["log_probability"] for one in drawn)


def test_the_space_before_a_gap_stays(place: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "xlnet")
    output = segue("infill", model, "Two ___ men are ___", "--length", 1, "--greedy")
    assert re.match(r"Two \[\S+\] men are \[\S+\]\n", output)


# ------------------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("generate", "{}/xl", "a", "--temperature", "-1", "--top-p", "2", "--seed", "-3"),
         ("temperature must be", "top_p must be", "seed must be")),
        (("generate", "{}/xl", "a", "--temperature", "nan"), ("temperature must be",)),
        (("generate", "{}/xl", "a", "--top-k", "0"), ("a positive whole number, or all; got '0'", "--top-k all")),
        (("generate", "{}/xl", "a", "--top-k", "many"), ("--top-k must be a positive whole number, or all",)),
        (("generate", "{}/xl", "a", "--load", "{}/none"), ("a saved session must be a file",)),
        (("generate", "{}/xl", "a", "--load", "{}/xl/model.safetensors"), ("must have format segue-session",)),
        (("generate", "{}/xl", "a", "--save", "{}"), ("got a folder",)),
        (("generate", "{}/xl", "a", "--max-tokens", "1", "--save", "{}/xl/config.toml/a"), ("must be writable; got",)),
        (("generate", "{}/xl", "a", "--n-best", "2", "--alternatives", "1"),
         ("--n-best requires --beam", "--alternatives requires")),
        (("generate", "{}/xl", "a", "--beam", "2", "--temperature", "0", "--stop", "x"),
         ("--beam cannot be combined with --temperature, --stop",)),
        (("generate", "{}/xl", "a", "--beam", "2", "--n-best", "3"), ("got 3 for a beam of 2",)),
        (("generate", "{}/xl", "a", "--beam", "2", "--length-penalty", "nan"), ("must be from 0 to 10; got nan",)),
        (("generate", "{}/xl", "a", "--memory-length", str(10**13)), ("memory_length must be from 1 to 1,000,000",)),
        (("generate", "{}/xl", "a", "--count", "2", "--greedy"), ("--count cannot be combined with --greedy",)),
        (("generate", "{}/xl", "a", "--choice", "x", "--max-tokens", "1"), ("cannot be combined with --max-tokens",)),
        (("generate", "{}/xl", "-", "--chat"), ("--chat reads standard input",)),
        (("generate", "{}/xl", "a", "--choice", "no", "--choice", "no"), ("choices must be different",)),
        (("generate", "{}/xl", "a", "--stop", ""), ("a stop string must not be empty",)),
        (("generate", "{}/xl", "a", "--stop", "\udcff"), ("half a character",)),
        (("generate", "{}/xl", "a", "--bias", "x"), ("--bias must have the form TOKEN=NUMBER",)),
        (("generate", "{}/xl", "a", "--bias", "two young men=1"), ("--bias must name a single token",)),
        (("generate", "{}/xl", "a", "--bias", "#99999=1"), ("logit_bias must be for ids",)),
        (("generate", "{}/xl", "a", "--bias", ".=inf"), ("logit_bias must be finite",)),
        (("generate", "{}/bert", "a"), ('got "masked"',)),
        (("generate", "{}/tuned", "a"), ("fine-tuned on the task generate", "segue predict")),
        (("generate", "{}/nothing", "a"), ("a model must be a folder",)),
        (("generate", "{}/xl", "-", "--encoding", "klingon"), ("the encoding must be",)),
        (("infill", "{}/xlnet", "a ___", "--greedy", "--top-k", "3"), ("--greedy cannot be combined with --top-k",)),
        (("infill", "{}/xl", "a ___"), ('objective "permutation"',)),
        (("infill", "{}/tuned", "a ___"), ("segue predict",)),
        (("infill", "{}/xlnet", "a"), ("infilling needs a gap",)),
        (("infill", "{}/xlnet", "a ___", "--length", "x"), ("--length must be comma-separated whole numbers",)),
        (("infill", "{}/xlnet", "a ___", "--length", "1,2"), ("a length for each gap",)),
        (("infill", "{}/xlnet", "a" * 30_000 + "___"), ("at most 20,000 characters",)),
    ],
)  # fmt: skip
def test_mistakes_are_explained(place: Path, arguments: tuple[str, ...], messages: tuple[str, ...]) -> None:
    found = segue(*(word.replace("{}", str(place)) for word in arguments), code=2)
    assert found.startswith("segue: ")
    for message in messages:
        assert message in found
