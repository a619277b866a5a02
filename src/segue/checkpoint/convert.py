"""Conversion of foreign checkpoints to model folders, and of models to foreign formats, with a report of every tensor.

In: a path of any supported format and the format to write. Out: a folder, and a `ConversionReport`, also stored in the
folder as `conversion.md`. If another library computes a different result, no folder is left behind.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from segue.checkpoint import compare as comparing
from segue.checkpoint.card import Facts
from segue.checkpoint.compare import Comparison
from segue.checkpoint.families import family_for
from segue.checkpoint.families.family import Target
from segue.checkpoint.families.mapping import MappedTensors, Row, to_theirs
from segue.checkpoint.families.writing import WrittenModel, written
from segue.checkpoint.files import CARD, LARGEST_CARD, read_small, shortened
from segue.checkpoint.find import local_folder
from segue.checkpoint.folder import not_finite, parameters_of, write_model
from segue.checkpoint.foreign import Foreign, read_foreign
from segue.checkpoint.heads import build, write_model_with_head
from segue.checkpoint.source import TensorSource, readable
from segue.checkpoint.tensorflow import write_tensorflow
from segue.checkpoint.vocabularies import NAMES, write_tokenizer
from segue.config import ModelConfig, XLPositions, model_config
from segue.errors import CheckpointError, SegueError
from segue.files import check_folder, write_folder
from segue.model import LanguageModel
from segue.model.build import shapes_only
from segue.text.files import save_tokenizer

VERSION = 3
"""Version of the conversion to a model folder, for caches of converted models. Raise it when the output changes."""
REPORT = "conversion.md"
WEIGHTS, PREFIX = "model.safetensors", "model.ckpt"
FEW = 4


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """The result of a conversion."""

    source: str
    out: str
    read: str
    """Name of the source format."""
    written: str
    """Name of the written format."""
    parameters: int
    rows: Sequence[Row]
    """Tensors mapped from the source to segue; empty for a segue model."""
    explained: Sequence[Row]
    written_rows: Sequence[Row]
    """Tensors mapped from segue to the written format; empty for a segue model."""
    written_explained: Sequence[Row]
    notes: Sequence[str]
    has_tokenizer: bool = True
    """True if the model has a tokeniser and so can read text."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file that was read, by file name."""
    comparison: Comparison | None = None
    not_compared: str = ""
    """Reason why there is no comparison."""

    def summary(self) -> list[str]:
        """Return the report in a few lines."""
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
            *([] if self.has_tokenizer else [f"no tokeniser ({', '.join(NAMES)}): the model reads ids, not text"]),
            *self._digests(),
        ]

    def _digests(self) -> list[str]:
        """Return a line for each file, or one line in total if there are many."""
        if len(self.digests) > FEW:
            return [f"sha256 of the {len(self.digests)} files that were read: in {REPORT}"]
        return [f"sha256 of {name}: {digest}" for name, digest in self.digests.items()]

    def markdown(self) -> str:
        """Return the whole report as Markdown."""
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
        if self.digests:
            lines += ["", "## Files read", "", "| file | sha256 |", "|---|---|"]
            lines += [f"| `{name}` | `{digest}` |" for name, digest in self.digests.items()]
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
    sha256: Sequence[str] = (),
    compare: bool = True,
    replace: bool = False,
) -> ConversionReport:
    """Convert `source` and write the folder `out`. See `foreign.read_foreign` for the formats that can be read.

    to="segue": a model folder. "hf": a folder that transformers loads: XLNet, BERT and GPT-2 in version 5,
    Transformer-XL up to 4.37. "tf": the variables and settings of the TensorFlow code, with the training step if the
    source has it, else 0. "original": a state dict and the arguments of the original PyTorch code, as safetensors.
    No pickle is ever written.
    """
    target = Path(out)
    here = local_folder(source)
    read = [here, Path(f"{here}.index")]
    read += [] if vocabulary is None else [Path(vocabulary)]
    with readable(target):
        check_folder(target, kind="conversion", replace=replace, inputs=read, failure=CheckpointError)
    foreign = read_foreign(here, overrides=overrides, head=head, vocabulary=vocabulary, sha256=sha256)
    output: _Output = _SegueOutput(foreign) if to == "segue" else _OtherOutput(foreign, to)
    reports: list[ConversionReport] = []

    def fill(new: Path) -> None:
        output.write(new)
        reports.append(_report(foreign, output, new, source=str(source), out=str(out), compare=compare))
        (new / REPORT).write_text(reports[0].markdown(), encoding="utf-8")

    write_folder(target, fill, kind="conversion", replace=replace, inputs=read, failure=CheckpointError)
    return reports[0]


# ------------------------------------------------------------------------------------------------- writing


class _Output(Protocol):
    """The output format of a conversion."""

    words: str
    """Name of the format."""
    mapped: MappedTensors | None
    """The tensors under foreign names; None for a segue model."""
    in_transformers: WrittenModel | None
    """The model in the form of transformers, if that is the output format."""
    notes: list[str]

    def write(self, new: Path) -> None:
        """Write the files into an empty folder."""


class _SegueOutput:
    """A model folder."""

    def __init__(self, foreign: Foreign) -> None:
        self._foreign = foreign
        self.words = "a segue model"
        self.notes: list[str] = []
        self.mapped: MappedTensors | None = None
        self.in_transformers: WrittenModel | None = None

    def write(self, new: Path) -> None:
        """Write the files into an empty folder."""
        foreign, facts = self._foreign, Facts(origin=self._foreign.format)
        with TemporaryDirectory() as work:
            tokenizer = None
            if foreign.tokenizer is not None:
                tokenizer = Path(work) / "tokenizer"
                save_tokenizer(foreign.tokenizer, tokenizer)
            if foreign.head is not None:
                write_model_with_head(foreign.model, foreign.head, new, tokenizer=tokenizer, facts=facts)
            else:
                assert isinstance(foreign.model, LanguageModel)
                write_model(foreign.model, new, tokenizer=tokenizer, facts=facts)
        card = foreign.detected.path / CARD
        if foreign.detected.is_own_model and card.is_file():  # its own card has more information
            (new / CARD).write_bytes(read_small(card, limit=LARGEST_CARD))


class _OtherOutput:
    """A folder in a foreign format."""

    def __init__(self, foreign: Foreign, to: Target) -> None:
        self._foreign, self._family = foreign, family_for(foreign.config, to)
        self._written = written(self._family, foreign.config, foreign.head, scope=foreign.scope)
        self.words = self._family.name
        self.notes = list(self._written.notes)
        self._tensors = to_theirs(self._written.table, dict(foreign.model.state_dict()))
        self.mapped: MappedTensors | None = self._tensors
        self.in_transformers: WrittenModel | None = self._written if to == "hf" else None

    def write(self, new: Path) -> None:
        """Write the files into an empty folder."""
        (new / self._family.settings_file).write_text(self._written.text, encoding="utf-8")
        if self._family.target == "tf":
            write_tensorflow(new / PREFIX, self._tensors.tensors, global_step=self._foreign.step or 0)
        else:
            _write_safetensors(self._tensors.tensors, new / WEIGHTS)
        if self._foreign.tokenizer is not None and (note := write_tokenizer(self._foreign.tokenizer, new)):
            self.notes.append(note)


def _write_safetensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    own = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    try:
        save_file(own, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from None


# -------------------------------------------------------------------------------------------------- report


def _report(foreign: Foreign, output: _Output, new: Path, *, source: str, out: str, compare: bool) -> ConversionReport:
    parameters, broken = parameters_of(foreign.model), not_finite(foreign.model)
    comparison, why = None, "it was not asked for"
    if broken:
        why = "no numbers to compare come out of weights that are not finite"
    elif compare:
        comparison, why = _compared(foreign, output, new, parameters)
    if comparison is not None and not comparison.agrees:
        raise CheckpointError(f"a conversion must compute the same; got another result: {comparison}. Report this.")
    return ConversionReport(
        source=source,
        out=out,
        read=foreign.format,
        written=output.words,
        parameters=parameters,
        rows=foreign.rows,
        explained=foreign.explained,
        written_rows=output.mapped.rows if output.mapped else (),
        written_explained=output.mapped.explained if output.mapped else (),
        notes=[*foreign.notes, *output.notes, *([f"CAREFUL: {broken}"] if broken else [])],
        has_tokenizer=foreign.tokenizer is not None,
        digests=foreign.digests,
        comparison=comparison,
        not_compared=why,
    )


def _compared(foreign: Foreign, output: _Output, new: Path, parameters: int) -> tuple[Comparison | None, str]:
    """Return the comparison, or None with the reason why there is none."""
    found = _in_transformers(foreign, output, new)
    if isinstance(found, str):
        return None, found
    if why := comparing.unavailable(found.architecture, parameters):
        return None, why
    model = _under_settings(foreign, found.config)
    try:
        return comparing.compare(model, foreign.head, found.make(), foreign.tokenizer), ""
    except SegueError:
        raise
    except Exception as error:  # another library may raise anything for foreign files
        return None, f"transformers failed with {type(error).__name__}: {shortened(error)}"


@dataclass(frozen=True, kw_only=True)
class _Theirs:
    """A model in the form of transformers."""

    architecture: str
    make: Callable[[], Any]
    config: ModelConfig
    """The segue config that its settings translate to."""


def _in_transformers(foreign: Foreign, output: _Output, new: Path) -> _Theirs | str:
    """Return the model of transformers: loaded from the written folder, built from the source's own settings and
    tensors, or built from the same weights under its names. Returns the reason as a string if there is none."""
    family, source = family_for(foreign.config, "hf"), foreign.detected.source
    there = output.in_transformers
    try:
        there = there or written(family, foreign.config, foreign.head, scope=foreign.scope)
    except CheckpointError:
        return "transformers has no such model"
    settings: Mapping[str, Any] = there.settings
    architecture: str = settings["architectures"][0]
    if output.in_transformers is not None:
        make = partial(comparing.loaded, architecture, new)
    elif (
        source is None or foreign.detected.family != family or not (names := there.table.names()) <= set(source.tensors)
    ):
        tensors = to_theirs(there.table, dict(foreign.model.state_dict())).tensors
        make = partial(comparing.built, architecture, settings, tensors)
    else:
        # Pass on only the settings and tensors of the model: others would change the behaviour of the library.
        settings = {name: value for name, value in foreign.detected.settings.items() if name in settings}
        copies = {copy.theirs for copy in there.table.copies} & set(source.tensors)
        make = partial(comparing.built, architecture, settings, _Tensors(source, names | copies))
    return _Theirs(architecture=architecture, make=make, config=model_config(**family.values(settings)))


def _under_settings(foreign: Foreign, there: ModelConfig) -> nn.Module:
    """Return the same weights with the lengths and the epsilon of the foreign settings, so that only the weights and
    their use are compared. The report notes settings that differ."""
    changes: dict[str, Any] = {name: getattr(there, name) for name in ("norm_epsilon", "attention_span", "memory")}
    positions = foreign.config.positions
    if isinstance(positions, XLPositions) and isinstance(there.positions, XLPositions):
        changes["positions"] = positions.model_copy(update={"clamp_distance": there.positions.clamp_distance})
    with shapes_only():
        model = build(foreign.config.model_copy(update=changes), foreign.head)
    model.load_state_dict(foreign.model.state_dict(), assign=True)
    return model


class _Tensors(Mapping[str, Tensor]):
    """The tensors of a source with these names, each read on access."""

    def __init__(self, source: TensorSource, names: Collection[str]) -> None:
        self._source, self._names = source, names

    def __getitem__(self, name: str) -> Tensor:
        return self._source.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
