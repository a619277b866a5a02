"""The model card, `README.md`: architecture, training data, metrics, command and licence of a model.

In: the config and the facts known to whoever trained the model. Out: Markdown with the front matter that model hubs
read. Unknown facts are marked as unknown.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from segue.config import ModelConfig, XLPositions
from segue.errors import CheckpointError

UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A store: its name, its size, and the sha256 of its `manifest.json`, which vouches for every token."""

    name: str
    tokens: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A value, and the step after which it was measured."""

    name: str
    value: float
    step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about a model that its config does not hold."""

    data: TrainingData | None = None
    metrics: Sequence[Metric] = ()
    remark: str | None = None
    """A remark on the metrics."""
    command: str | None = None
    origin: str | None = None
    """Origin of the weights, if they were not trained here."""
    start: str | None = None
    """Model that training started from, with its digest."""
    licence: str | None = None
    """Licence identifier as hubs write it: apache-2.0, mit, cc-by-4.0, other."""
    languages: Sequence[str] = ()
    """Language codes: en, zh."""


def make_card(config: ModelConfig, parameters: int, facts: Facts, *, head: Mapping[str, str] | None = None) -> str:
    """Return the whole card. `head`: the settings of a head by name, its `kind` among them."""
    tags = ["segue", *_tags(config, head)]
    front = _front([], licence=facts.licence or UNKNOWN, languages=facts.languages, tags=tags)
    sections = [
        f"# {_title(config, head)}",
        f"{_about(config, parameters, head or {})}\n\n{_loading(head)}",
        "## Training data\n\n" + _data(facts),
        "## Metrics\n\n" + _metrics(facts),
        _COMMAND + (f"    {_line(facts.command)}" if facts.command else _UNKNOWN),
        _licence_section(facts.licence),
    ]
    return front + "\n" + "\n\n".join(sections) + "\n"


def updated_card(
    card: str, *, licence: str | None = None, languages: Sequence[str] = (), name: str | None = None
) -> str:
    """Return the card with the given licence, languages and name, and with segue as its library. All other content,
    including edits by hand, stays."""
    front, body = _split(card)
    if licence is not None:
        body = body.replace(_licence_section(None), _licence_section(licence))
    if name is not None:
        body = body.replace(_loading(None), f'Load it with `segue.load("{name}")`.')
        body = body.replace(_loading({}), f'Use it with `segue predict {name} "TEXT"`.')
    return _front(front, licence=licence, languages=languages, tags=()) + body


def unknown_sections(card: str) -> list[str]:
    """Return the titles of the sections that are still marked as unknown."""
    return re.findall(rf"^## (.+)\n\n{re.escape(_UNKNOWN)}$", card, flags=re.MULTILINE)


def licence_and_languages(card: str) -> tuple[str, list[str]]:
    """Return licence and languages from the front matter; `unknown` and an empty list where it names none."""
    front, _ = _split(card)
    licence, languages, key = UNKNOWN, list[str](), ""
    for line in front:
        if found := re.match(r"(\w+)\s*:\s*(.*)", line):
            key = found[1]
            licence = found[2].strip('" ') or licence if key == "license" else licence
        elif key == "language" and (item := re.match(r"\s*-\s*(\S+)", line)):
            languages.append(item[1].strip('"'))
    return licence, languages


# ------------------------------------------------------------------------------------------------------ the text

_UNKNOWN = "Unknown."
_COMMAND = "## Command\n\n"


def _title(config: ModelConfig, head: Mapping[str, str] | None) -> str:
    names = {"causal": "language model", "permutation": "permutation language model", "masked": "masked language model"}
    family = _family(config)
    model = f"a {names[config.objective]}" + (f" ({family})" if family else "")
    return f"A {_line(head['kind'])} on {model}" if head else f"A{model[1:]}"


def _loading(head: Mapping[str, str] | None) -> str:
    if head is not None:
        return 'Load it with `segue.checkpoint.heads.load_head("FOLDER")`.'
    return 'Load it with `segue.load("FOLDER")`, or by its name on a hub.'


def _family(config: ModelConfig) -> str | None:
    if not isinstance(config.positions, XLPositions) or config.directions == "both":
        return None
    return {"causal": "Transformer-XL", "permutation": "XLNet"}.get(config.objective)


def _tags(config: ModelConfig, head: Mapping[str, str] | None) -> list[str]:
    family = _family(config)
    kind = f"{config.objective}-language-model" if head is None else head["kind"].replace(" ", "-")
    return [kind, *([] if family is None else [family.lower()])]


def _about(config: ModelConfig, parameters: int, head: Mapping[str, str]) -> str:
    words, memory = config.vocabulary, config.memory
    rows = [
        ("parameters", f"{parameters:,}"),
        ("objective", config.objective),
        ("layers", f"{config.num_layers}"),
        ("width", f"{config.width}, inner {config.inner_width}"),
        ("heads", f"{config.num_heads} of width {config.resolved_head_width}"),
        ("positions", config.positions.kind),
        ("memory", "none" if memory is None else f"{memory.length} tokens"),
        ("vocabulary", f"{words.size:,} tokens" + (f" in {len(words.cutoffs) + 1} bins" if words.cutoffs else "")),
        *(("head" if name == "kind" else f"head, {name}", _line(value)) for name, value in head.items()),
    ]
    return _table(("setting", "value"), rows)


def _licence_section(licence: str | None) -> str:
    return f"## Licence\n\n{licence or _UNKNOWN}"


def _data(facts: Facts) -> str:
    lines = []
    if facts.origin:
        lines.append(f"The weights come from {_line(facts.origin)}.")
    if facts.start:
        lines.append(f"Training started from {_line(facts.start)}.")
    if facts.data is not None:
        lines.append(
            f"{_line(facts.data.name)}: {facts.data.tokens:,} tokens; "
            f"sha256 of its manifest `{_line(facts.data.sha256)}`."
        )
    return "\n\n".join(lines) or _UNKNOWN


def _metrics(facts: Facts) -> str:
    rows = [
        (_line(metric.name), f"{metric.value:.6g}", "" if metric.step is None else f"{metric.step:,}")
        for metric in facts.metrics
    ]
    table = _table(("metric", "value", "step"), rows) if rows else _UNKNOWN
    return table if facts.remark is None else f"{table}\n\n{_line(facts.remark)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _line(text: str) -> str:
    """Return the text on a single line."""
    return " ".join(text.split())


# -------------------------------------------------------------------------------------------------- front matter


def _front(front: list[str], *, licence: str | None, languages: Sequence[str], tags: Sequence[str]) -> str:
    if licence is not None:
        front = _set(front, "license", f"license: {_scalar(_licence(licence))}")
    if languages:
        front = _set(front, "language", "\n".join(["language:", *(f"- {_scalar(_code(code))}" for code in languages)]))
    if tags:
        front = _set(front, "tags", "\n".join(["tags:", *(f"- {_scalar(tag)}" for tag in tags)]))
    front = _set(front, "library_name", "library_name: segue")
    return "---\n" + "\n".join(front) + "\n---\n"


def _split(card: str) -> tuple[list[str], str]:
    """Return the lines of the front matter and the text after it."""
    lines = card.splitlines()
    if lines and lines[0].rstrip() == "---" and "---" in (line.rstrip() for line in lines[1:]):
        end = next(number for number, line in enumerate(lines[1:], start=1) if line.rstrip() == "---")
        return lines[1:end], "".join(f"{line}\n" for line in lines[end + 1 :])
    return [], card


def _set(front: list[str], key: str, text: str) -> list[str]:
    """Set the value of a key, in place or at the end. Nested lists and tables of the old value are removed with it."""
    start = next((number for number, line in enumerate(front) if re.match(rf"{key}\s*:", line)), None)
    if start is None:
        return [*front, text]
    end = start + 1
    while end < len(front) and re.match(r"[\s\-]|$", front[end]):
        end += 1
    return [*front[:start], text, *front[end:]]


def _licence(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]{0,63}", text):
        raise CheckpointError(
            f"a licence must be a lower-case identifier without spaces; got {text!r}. Use apache-2.0, mit, cc-by-4.0, "
            "other or unknown, for example."
        )
    return text


def _code(text: str) -> str:
    if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", text):
        raise CheckpointError(
            f"a language must be a code of two or three letters; got {text!r}. Use en or zh, for example."
        )
    return text


def _scalar(text: str) -> str:
    """Return the text as a YAML scalar: bare if it can only be a string, else quoted. `no` is Norwegian, not false."""
    bare = re.fullmatch(r"[A-Za-z][A-Za-z0-9.+-]*", text) and text.lower() not in {
        "y", "n", "yes", "no", "on", "off", "true", "false", "null",
    }  # fmt: skip
    return text if bare else json.dumps(text, ensure_ascii=False)
