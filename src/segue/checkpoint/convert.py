"""From anyone's checkpoint to a model folder, and from a model to what others read, with a report of every tensor.

In: a path of any supported format and the format to write. Out: a folder, and a `Report`, also in it as
`conversion.md`. A conversion that another library contradicts leaves no folder.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from segue.checkpoint import compare as comparing
from segue.checkpoint.card import Facts
from segue.checkpoint.compare import Comparison
from segue.checkpoint.detect import SETTINGS, XLNET_SETTINGS, Family
from segue.checkpoint.files import write_folder
from segue.checkpoint.folder import save
from segue.checkpoint.foreign import Foreign, read_foreign
from segue.checkpoint.heads import HeadConfig, save_head
from segue.checkpoint.names import (
    transformer_xl_original,
    transformer_xl_tensorflow,
    transformer_xl_transformers,
    xlnet_tensorflow,
    xlnet_transformers,
)
from segue.checkpoint.names.rules import Mapped, Row, Table, to_theirs
from segue.checkpoint.tensorflow import write_tensorflow
from segue.checkpoint.vocabularies import write_tokenizer
from segue.config import ModelConfig, XLPositions, model_config
from segue.errors import CheckpointError
from segue.model import LanguageModel
from segue.text.files import save_tokenizer

Target: TypeAlias = Literal["segue", "hf", "tf", "original"]
REPORT = "conversion.md"
WEIGHTS, PREFIX, FLAGS = "model.safetensors", "model.ckpt", "flags.txt"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a conversion did."""

    source: str
    out: str
    read: str
    """What the source was, in words."""
    written: str
    """What was written."""
    parameters: int
    rows: Sequence[Row]
    """From the source to segue; empty where it was a segue model."""
    explained: Sequence[Row]
    written_rows: Sequence[Row]
    """From segue to what was written; empty where that is a segue model."""
    written_explained: Sequence[Row]
    notes: Sequence[str]
    comparison: Comparison | None = None
    not_compared: str | None = None
    """Why there is no comparison."""

    def summary(self) -> list[str]:
        """A line for each thing to know."""
        rows, explained = self.rows or self.written_rows, self.explained if self.rows else self.written_explained
        names = sum(len(row.theirs) for row in rows)
        compared = (
            str(self.comparison) if self.comparison else f"not compared with another library: {self.not_compared}"
        )
        return [
            f"{self.read} -> {self.written}",
            f"{self.parameters:,} parameters; {names} tensors mapped, {len(explained)} explained, none left over",
            str(compared),
            *self.notes,
        ]

    def markdown(self) -> str:
        """The whole report."""
        lines = [f"# Conversion of {self.source}", "", *(f"- {line}" for line in self.summary())]
        for title, rows in (
            (f"Tensors read: {self.read}", self.rows),
            ("Explained", self.explained),
            (f"Tensors written: {self.written}", self.written_rows),
            ("Explained", self.written_explained),
        ):
            if rows:
                lines += ["", f"## {title}", "", "| theirs | ours | shape | rule |", "|---|---|---|---|"]
                lines += [_markdown(row) for row in rows]
        return "\n".join(lines) + "\n"


def _markdown(row: Row) -> str:
    theirs, ours = (", ".join(f"`{name}`" for name in names) or "-" for names in (row.theirs, row.ours))
    return f"| {theirs} | {ours} | {list(row.shape)} | {row.words} |"


def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: Target = "segue",
    overrides: Sequence[str] = (),
    head: str | None = None,
    vocabulary: str | Path | None = None,
    compare: bool = True,
    replace: bool = False,
) -> Report:
    """Reads `source` and writes the folder `out`. See `foreign.read_foreign` for what may be read and how.

    to="segue": a model folder. "hf": a folder that transformers loads, XLNet in version 5, Transformer-XL up to 4.37.
    "tf": the variables and settings of the TensorFlow code. "original": a state dict and the arguments of the original
    PyTorch code, as safetensors. No pickle is ever written.
    """
    target = Path(out)
    _check_target(target, replace=replace)
    foreign = read_foreign(source, overrides=overrides, head=head, vocabulary=vocabulary)
    writer = _segue_writer(foreign) if to == "segue" else _other_writer(foreign, to)
    reports: list[Report] = []

    def also(new: Path) -> None:
        report = _report(foreign, writer, new, source=str(source), out=str(out), compare=compare)
        (new / REPORT).write_text(report.markdown(), encoding="utf-8")
        reports.append(report)

    writer.write(target, also)
    return reports[0]


def _check_target(target: Path, *, replace: bool) -> None:
    if not target.exists():
        return
    if not replace or not (target / REPORT).is_file():
        raise CheckpointError(
            f"{target} must not exist, or be a folder of an earlier conversion that may be replaced; got "
            f"{'such a folder' if (target / REPORT).is_file() else 'something else'}. "
            "Choose another place" + (", or add --replace." if (target / REPORT).is_file() else ".")
        )


# ------------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True, kw_only=True)
class _Writer:
    words: str
    """What is written."""
    write: Callable[[Path, Callable[[Path], None]], None]
    """Into a place, then calls back with the folder before it is in its place."""
    mapped: Mapped | None = None
    """The tensors under the names of others."""
    notes: list[str] = field(default_factory=list)
    loads: str | None = None
    """The class of transformers that loads what is written."""


def _segue_writer(foreign: Foreign) -> _Writer:
    def write(target: Path, also: Callable[[Path], None]) -> None:
        with TemporaryDirectory() as work:
            tokenizer = None
            if foreign.tokenizer is not None:
                tokenizer = Path(work) / "tokenizer"
                save_tokenizer(foreign.tokenizer, tokenizer)
            if foreign.head is not None:
                save_head(foreign.model, foreign.head, target, tokenizer=tokenizer, also=also)
            else:
                assert isinstance(foreign.model, LanguageModel)
                facts = Facts(origin=f"converted from {foreign.format}")
                save(foreign.model, target, tokenizer=tokenizer, facts=facts, also=also)

    return _Writer(words="a segue model", write=write)


def _other_writer(foreign: Foreign, to: Target) -> _Writer:
    family, config, head = _family(foreign.config, to), foreign.config, foreign.head
    notes = _expressible(family, config, head)
    table, files, words = _target(family, config, head, foreign.scope)
    mapped = to_theirs(
        table, dict(foreign.model.state_dict()), copies=to == "original" or family != "xlnet_transformers"
    )

    def write(target: Path, also: Callable[[Path], None]) -> None:
        def fill(new: Path) -> None:
            for name, text in files.items():
                (new / name).write_text(text, encoding="utf-8")
            if to == "tf":
                write_tensorflow(new / PREFIX, mapped.tensors, global_step=0)
            else:
                _write_safetensors(mapped.tensors, new / WEIGHTS)
            if foreign.tokenizer is not None and (note := write_tokenizer(foreign.tokenizer, new)):
                notes.append(note)
            also(new)

        write_folder(target, fill)

    loads = json.loads(files[SETTINGS])["architectures"][0] if to == "hf" else None
    return _Writer(words=words, write=write, mapped=mapped, notes=notes, loads=loads)


def _target(
    family: Family, config: ModelConfig, head: HeadConfig | None, scope: str
) -> tuple[Table, dict[str, str], str]:
    """The table, the files with settings, and what to call it."""
    match family:
        case "xlnet_transformers":
            settings = {SETTINGS: xlnet_transformers.settings(config, head)}
            return xlnet_transformers.table(config, head), _json(settings), xlnet_transformers.FAMILY
        case "transformer_xl_transformers":
            settings = {SETTINGS: transformer_xl_transformers.settings(config, head)}
            return transformer_xl_transformers.table(config, head), _json(settings), transformer_xl_transformers.FAMILY
        case "xlnet_tensorflow":
            settings = {XLNET_SETTINGS: xlnet_tensorflow.settings(config)}
            return xlnet_tensorflow.table(config, head, scope=scope), _json(settings), xlnet_tensorflow.FAMILY
        case "transformer_xl_tensorflow":
            flags = transformer_xl_tensorflow.settings(config)
            lines = {FLAGS: "".join(f"--{name}={_flag(flags[name])}\n" for name in transformer_xl_tensorflow.FLAGS)}
            return transformer_xl_tensorflow.table(config), lines, transformer_xl_tensorflow.FAMILY
        case "transformer_xl_original":
            settings = {SETTINGS: transformer_xl_original.settings(config)}
            return transformer_xl_original.table(config), _json(settings), transformer_xl_original.FAMILY


def _json(files: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(values, indent=1) + "\n" for name, values in files.items()}


def _flag(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _write_safetensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    own = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    try:
        save_file(own, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from None


# ----------------------------------------------------------------------------------- what others can express

_TRAINING = {"dropout", "attention_dropout", "init_std", "projection_init_std"}
_NOTED = {"norm_epsilon", "attention_span", "positions.clamp_distance"}


def _family(config: ModelConfig, to: Target) -> Family:
    """Whose names a model gets."""
    xlnet = config.segments == "relative"
    match to:
        case "hf":
            return "xlnet_transformers" if xlnet else "transformer_xl_transformers"
        case "tf":
            return "xlnet_tensorflow" if xlnet else "transformer_xl_tensorflow"
        case _:
            return "transformer_xl_original"


def _expressible(family: Family, config: ModelConfig, head: HeadConfig | None) -> list[str]:
    """Notes on settings that are others there but change no weights. Raises where the model would be another one: the
    settings are translated there and back, and must come back."""
    module: Any = {
        "xlnet_transformers": xlnet_transformers,
        "transformer_xl_transformers": transformer_xl_transformers,
        "xlnet_tensorflow": xlnet_tensorflow,
        "transformer_xl_tensorflow": transformer_xl_tensorflow,
        "transformer_xl_original": transformer_xl_original,
    }[family]
    if head is not None and family in ("transformer_xl_tensorflow", "transformer_xl_original"):
        raise CheckpointError(f"{module.FAMILY} has no heads; got a {head.kind}. Write it as segue or as hf.")
    if family != "transformer_xl_original" and not isinstance(config.positions, XLPositions):
        raise CheckpointError(
            f'model.positions.kind must be "xl" for {module.FAMILY}; got "{config.positions.kind}". Keep it as segue.'
        )
    if family == "transformer_xl_original":
        module.table(config)  # which knows the kinds of positions
    there = _flat(model_config(**module.values(module.settings(config))))
    here = _flat(config)
    handled = {"vocabulary.cluster_order"} | _handled(family, config)
    different = {name for name in here | there if here.get(name) != there.get(name)} - _TRAINING - handled
    noted = {name for name in different if name in _NOTED or name.startswith("memory")}
    if wrong := sorted(different - noted):
        found = "; ".join(f"model.{name} must be {there.get(name)!r}, got {here.get(name)!r}" for name in wrong)
        raise CheckpointError(f"{module.FAMILY} cannot express this model: {found}. Keep it as segue.")
    return [f"model.{name}: {here.get(name)!r} here, {there.get(name)!r} there." for name in sorted(noted)]


def _handled(family: Family, config: ModelConfig) -> set[str]:
    """Settings that make no difference, because the table or the shape of the model takes care of them."""
    found = set()
    words, bins = config.vocabulary, range(len(config.vocabulary.cutoffs) + 1)
    if family == "xlnet_transformers":
        found.add("positions.shared_biases")
    if not any(transformer_xl_tensorflow.projected(config, i) for i in bins):
        found |= {"vocabulary.tie_projections", "vocabulary.project_first_bin"}
    if words.shrink == 1:
        found.add("vocabulary.project_first_bin")
    if len(bins) == 1 and words.tie_projections != "all" and family != "transformer_xl_tensorflow":
        found.add("vocabulary.tie_projections")
    return found


def _flat(config: ModelConfig) -> dict[str, Any]:
    """Dotted names and values, with the defaults that depend on others filled in."""
    values = config.model_dump()
    values["head_width"] = config.resolved_head_width
    values["vocabulary"]["width"] = config.vocabulary.width or config.width
    return dict(_pairs(values))


def _pairs(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        found += (
            _pairs(value, f"{name}.") if isinstance(value, Mapping) else [(name, value)] if value is not None else []
        )
    return found


# -------------------------------------------------------------------------------------------------- report


def _report(foreign: Foreign, writer: _Writer, new: Path, *, source: str, out: str, compare: bool) -> Report:
    model = foreign.model
    parameters = sum(parameter.numel() for parameter in model.parameters())
    comparison, why = _compared(foreign, writer, new, parameters) if compare else (None, "it was not asked for")
    if comparison is not None and not comparison.agrees:
        raise CheckpointError(f"a conversion must compute the same; got another result: {comparison}. Report this.")
    return Report(
        source=source,
        out=out,
        read=foreign.format,
        written=writer.words,
        parameters=parameters,
        rows=foreign.rows,
        explained=foreign.explained,
        written_rows=writer.mapped.rows if writer.mapped else (),
        written_explained=writer.mapped.explained if writer.mapped else (),
        notes=[*foreign.notes, *writer.notes],
        comparison=comparison,
        not_compared=why,
    )


def _compared(foreign: Foreign, writer: _Writer, new: Path, parameters: int) -> tuple[Comparison | None, str | None]:
    """With the folder as transformers loads it, or with the source's own tensors, or with the same weights there."""
    settings: Mapping[str, Any] = foreign.detected.settings
    weights: Mapping[str, Tensor] = {}
    architecture = writer.loads
    if architecture is None and foreign.detected.family in ("xlnet_transformers", "transformer_xl_transformers"):
        architecture, weights = next(iter(settings.get("architectures") or []), None), _raw(foreign)
        if architecture in (None, xlnet_transformers.BASE, transformer_xl_transformers.BASE):
            return None, "a model without a head has no logits"
    elif architecture is None:
        family = _family(foreign.config, "hf")
        try:
            _expressible(family, foreign.config, foreign.head)
            table, files, _ = _target(family, foreign.config, foreign.head, foreign.scope)
        except CheckpointError:
            return None, "transformers has no such model"
        settings, weights = json.loads(files[SETTINGS]), to_theirs(table, dict(foreign.model.state_dict())).tensors
        architecture = settings["architectures"][0]
    assert isinstance(architecture, str)
    if why := comparing.unavailable(architecture, parameters):
        return None, why
    other = comparing.built(architecture, settings, weights) if weights else comparing.loaded(architecture, new)
    return comparing.compare(foreign.model, foreign.head, other, foreign.tokenizer), None


def _raw(foreign: Foreign) -> dict[str, Tensor]:
    source = foreign.detected.source
    assert source is not None
    return {name: source.read(name) for name in source.tensors}
