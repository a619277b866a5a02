"""Export of a model: an encoder or a step of a stream, as ONNX or as a program of torch.export, in a folder.

In: the path or name of a model (`segue.checkpoint.find`), and settings. Out: a folder, written atomically, with the
program, `export.json` that describes its inputs and outputs, a card with an example, and the tokeniser. A step also has
`initial.npz`, the state of rows that have read nothing. All numbers are float32.

Nothing is written without a check: the program runs on random input, and must equal the model to 1e-4. Files of
torch.export are written here and never read: `torch.export.load` may unpickle, so a foreign file can run code.
"""

import io
import json
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from segue.checkpoint.files import CARD
from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import HEAD, TOKENIZER
from segue.checkpoint.folder import load as load_folder
from segue.checkpoint.heads import load_head
from segue.config import ModelConfig
from segue.errors import CheckpointError, ConfigError
from segue.files import check_folder, write_folder
from segue.infer.export_card import make_export_card
from segue.infer.export_modules import Encoder, StreamStep
from segue.model import LanguageModel, Trunk
from segue.text.files import load_tokenizer
from segue.text.tokenizer import Tokenizer

DESCRIPTION, INITIAL = "export.json", "initial.npz"
FORMAT = "segue-export-1"
OPSET = 20
TOLERANCE = 1e-4
"""Maximum difference between the program and the model."""
LARGEST_STATE = 4 << 30
"""Maximum size of a state in bytes: it is an input and an output of every step."""

Array: TypeAlias = NDArray[Any]
Run: TypeAlias = Callable[[Mapping[str, Array]], list[Array]]


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """The settings of an export."""

    what: Literal["encoder", "step"]
    format: Literal["onnx", "torch"] = "onnx"
    memory_length: int | None = None
    """For a step, the number of earlier tokens that each token sees. Default: the memory length of the model."""
    rows: int | None = None
    """For a step, the number of streams read together. Default: 1."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The written files, and the result of the check."""

    folder: Path
    files: Mapping[str, int]
    """Size of each file in bytes, by name."""
    largest_difference: float
    """Largest difference between the program and the model, over all outputs of the random input."""
    milliseconds: float
    """Median time of a run of the program during that check, in milliseconds."""
    left_out: str | None
    """Kind of the head that was left out; None if the model has none."""


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """The description of one input or output."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    about: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """A module with the arguments of the exporter, and the values for `export.json`."""

    module: nn.Module
    example: tuple[Tensor, ...]
    dynamic: tuple[dict[int, Any], ...] | None
    """Dynamic dimensions of each input."""
    inputs: tuple[Tensors, ...]
    outputs: tuple[Tensors, ...]
    initial: Mapping[str, Array] | None
    """The inputs of a step that are its state, for rows that have read nothing."""
    config: ModelConfig


def export(source: str | Path, out: str | Path, settings: ExportSettings, *, replace: bool = False) -> Exported:
    """Write the folder `out`. With `replace`, it may be that of an earlier export."""
    target = Path(out)
    check_folder(target, kind="export", replace=replace, failure=ConfigError)
    _check_settings(settings)
    if settings.format == "onnx":
        _packages()
    found = find(source)
    folder = model_folder(found)
    read = [found.path, folder]
    check_folder(target, kind="export", replace=replace, inputs=read, failure=ConfigError)
    program, left_out = _program(folder, settings)
    measured: list[tuple[float, float]] = []

    def write(new: Path) -> None:
        run = _write_onnx(program, new) if settings.format == "onnx" else _write_torch(program, new)
        measured.append(_checked(program, run))
        tokenizer = None
        if (folder / TOKENIZER).is_dir():
            tokenizer = load_tokenizer(folder / TOKENIZER)  # raises for a broken one
            shutil.copytree(folder / TOKENIZER, new / TOKENIZER)
        if program.initial is not None:
            np.savez_compressed(new / INITIAL, **program.initial)  # type: ignore[arg-type]  # not allow_pickle
        description = _description(program, settings, tokenizer, measured[0][0], left_out)
        (new / DESCRIPTION).write_text(json.dumps(description, indent=1, ensure_ascii=False), encoding="utf-8")
        (new / CARD).write_text(make_export_card(description), encoding="utf-8")

    write_folder(target, write, kind="export", replace=replace, inputs=read, failure=CheckpointError)
    ((difference, milliseconds),) = measured
    return Exported(
        folder=target,
        files={path.relative_to(target).as_posix(): path.stat().st_size for path in _files(target)},
        largest_difference=difference,
        milliseconds=milliseconds,
        left_out=left_out,
    )


# -------------------------------------------------------------------------------------------------------- programs


def _program(folder: Path, settings: ExportSettings) -> tuple[Program, str | None]:
    if (folder / HEAD).is_file():
        if settings.what == "step":
            raise ConfigError(
                f"a step needs a language model; got {folder}, a model with a head, {HEAD}. Export its encoder, or use "
                "the model it was fine-tuned from."
            )
        with_head, head = load_head(folder)
        trunk = with_head.get_submodule("trunk")
        assert isinstance(trunk, Trunk)
        return encoder_program(trunk), head.kind
    model = load_folder(folder)
    if settings.what == "encoder":
        return encoder_program(model.trunk), None
    return step_program(model, memory_length=settings.memory_length, rows=settings.rows or 1), None


def encoder_program(trunk: Trunk) -> Program:
    """Return the encoder of any model; rows and length are dynamic."""
    config = trunk.config
    longest = config.learned_positions
    length = 3 if longest is None else min(3, longest)
    ids, real = torch.zeros(2, length, dtype=torch.long), torch.ones(2, length, dtype=torch.bool)
    both = {0: torch.export.Dim("rows", min=1), 1: torch.export.Dim("length", min=1, max=longest)}
    shape = ("rows", "length")
    return Program(
        module=Encoder(trunk.float().eval()).requires_grad_(False),
        example=(ids, real),
        dynamic=(both, both),
        inputs=(
            Tensors(name="ids", dtype="int64", shape=shape, about=f"tokens, 0 to {config.vocabulary.size - 1}"),
            Tensors(name="real", dtype="bool", shape=shape, about="true for tokens, false for padding on the right"),
        ),
        outputs=(
            Tensors(
                name="hidden", dtype="float32", shape=(*shape, config.hidden_width), about="states of the last layer"
            ),
        ),
        initial=None,
        config=config,
    )


def step_program(model: LanguageModel, *, memory_length: int | None, rows: int) -> Program:
    """Return one step of a causal or permutation model; all shapes are fixed."""
    config = model.config
    if memory_length is None and config.memory is None:
        raise ConfigError(
            "a step needs memory_length where the model has no memory of its own; got none. Give --memory-length."
        )
    length = config.memory.length if memory_length is None and config.memory is not None else memory_length
    assert length is not None
    size = 8 * config.num_layers * rows * config.num_heads * config.resolved_head_width * length
    if size > LARGEST_STATE:
        raise ConfigError(
            f"the state of a step must have at most {LARGEST_STATE:,} bytes; got {size:,} for memory_length {length} "
            f"and {rows} rows. Use less of one of them."
        )
    step = StreamStep(model.float().eval(), memory_length=length).requires_grad_(False)
    state = step.initial_state(rows)
    kept = (config.num_layers, rows, config.num_heads, step.memory_length, config.resolved_head_width)
    parts: tuple[tuple[str, str, tuple[int, ...], str], ...] = (
        ("key", "float32", kept, "keys of the latest positions: layer, row, head, position (oldest first), width"),
        ("value", "float32", kept, "their values"),
        ("valid", "bool", (rows, step.memory_length), "which of them are there"),
        ("position", "int64", (rows,), "how many tokens each row has read"),
    )
    inputs = [Tensors(name=name, dtype=dtype, shape=shape, about=about) for name, dtype, shape, about in parts]
    after = [
        Tensors(name=f"next_{name}", dtype=dtype, shape=shape, about=f"{name} of the next step")
        for name, dtype, shape, _ in parts
    ]
    vocabulary = config.vocabulary.size
    ids = Tensors(name="ids", dtype="int64", shape=(rows, 1), about=f"a token of each row, 0 to {vocabulary - 1}")
    found = Tensors(
        name="log_probability", dtype="float32", shape=(rows, vocabulary), about="log p of each token to come next"
    )
    return Program(
        module=step,
        example=(torch.zeros(rows, 1, dtype=torch.long), *state),
        dynamic=None,
        inputs=(ids, *inputs),
        outputs=(found, *after),
        initial={tensors.name: part.numpy() for tensors, part in zip(inputs, state, strict=True)},
        config=config,
    )


def _check_settings(settings: ExportSettings) -> None:
    for name, value in (("memory_length", settings.memory_length), ("rows", settings.rows)):
        if value is not None and settings.what == "encoder":
            raise ConfigError(f"{name} applies only to a step; got {value} for the encoder. Leave it out.")
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1; got {value}. Use 1 or more.")


def _description(
    program: Program, settings: ExportSettings, tokenizer: Tokenizer | None, difference: float, left_out: str | None
) -> dict[str, Any]:
    """Return the content of `export.json`."""
    config = program.config
    reads_on = config.objective != "masked"

    def listed(tensors: tuple[Tensors, ...]) -> list[dict[str, Any]]:
        return [{"name": x.name, "dtype": x.dtype, "shape": list(x.shape), "about": x.about} for x in tensors]

    return {
        "format": FORMAT,
        "what": settings.what,
        "file": "model.onnx" if settings.format == "onnx" else "model.pt2",
        "opset": OPSET if settings.format == "onnx" else None,
        "torch": torch.__version__.partition("+")[0],
        "objective": config.objective,
        "vocabulary_size": config.vocabulary.size,
        "longest": config.learned_positions,
        "begin": tokenizer.specials.get("eod") if tokenizer is not None and reads_on else None,
        "tokenizer": tokenizer is not None,
        "head_left_out": left_out,
        "largest_difference": difference,
        "inputs": listed(program.inputs),
        "outputs": listed(program.outputs),
    }


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------------------------------------------------- writing


def _packages() -> Any:
    """Return the module onnxruntime; raise ConfigError if a package that ONNX needs is missing."""
    try:
        import_module("onnx")
        import_module("onnxscript")
        return import_module("onnxruntime")
    except ImportError as error:
        raise ConfigError(
            f"ONNX needs onnx, onnxscript and onnxruntime; {error.name} is not installed. Install them: pip install "
            "onnx onnxscript onnxruntime."
        ) from None


def exported_program(program: Program) -> torch.export.ExportedProgram:
    """Return the program as exported by torch.export."""
    with torch.no_grad():
        return torch.export.export(program.module, program.example, dynamic_shapes=program.dynamic)


def _write_onnx(program: Program, folder: Path) -> Run:
    """Write `model.onnx`, its weights in `model.onnx.data`; return the function that runs it."""
    runtime = _packages()
    with _quiet():
        made = torch.onnx.export(
            exported_program(program),
            program.example,
            input_names=[tensors.name for tensors in program.inputs],
            output_names=[tensors.name for tensors in program.outputs],
            opset_version=OPSET,
            dynamic_shapes=program.dynamic,  # for their names
            dynamo=True,
            verbose=False,
        )
    assert made is not None
    made.save(folder / "model.onnx", external_data=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return lambda inputs: list(session.run(None, dict(inputs)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages about itself and about optional packages."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _write_torch(program: Program, folder: Path) -> Run:
    """Write `model.pt2`; return the function that runs the same program in memory."""
    made = exported_program(program)
    whole = io.BytesIO()  # torch's own writer of files would end the process on a full disk
    torch.export.save(made, whole)
    (folder / "model.pt2").write_bytes(whole.getbuffer())
    module = made.module()

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        found = module(*(torch.from_numpy(inputs[tensors.name].copy()) for tensors in program.inputs))
        return [part.numpy() for part in (found if isinstance(found, tuple) else (found,))]

    return run


# --------------------------------------------------------------------------------------------------------- checking


def _checked(program: Program, run: Run) -> tuple[float, float]:
    """Return the largest difference from the model and the median milliseconds of a run; raise an error if the
    difference is too large."""
    check = _check_encoder if program.initial is None else _check_step
    seconds: list[float] = []

    def timed(inputs: Mapping[str, Array]) -> list[Array]:
        start = time.perf_counter()
        found = run(inputs)
        seconds.append(time.perf_counter() - start)
        return found

    with torch.no_grad():
        difference = check(program, timed, np.random.default_rng(0))
    if not difference <= TOLERANCE:  # also true for NaN
        raise CheckpointError(
            f"an exported program must equal its model to {TOLERANCE:g}; got a difference of {difference:.3g} on "
            "random input. Nothing was written. Check the weights for NaN (segue doctor), or try another --format."
        )
    return difference, 1000 * float(np.median(seconds))


def _check_encoder(program: Program, run: Run, generator: np.random.Generator) -> float:
    """Return the largest difference on rows and lengths that the exporter has not seen, with padding."""
    worst = 0.0
    longest = program.config.learned_positions or 33
    for rows, length in ((1, 1), (1, 33), (3, 10), (4, 2)):
        shape = (rows, min(length, longest))
        ids = generator.integers(0, program.config.vocabulary.size, shape)
        real = np.arange(shape[1]) < generator.integers(1, shape[1] + 1, (rows, 1))
        expected = program.module(torch.from_numpy(ids), torch.from_numpy(real)).numpy()
        (found,) = run({"ids": ids, "real": real})
        worst = _larger(worst, found, expected)
    return worst


def _check_step(program: Program, run: Run, generator: np.random.Generator) -> float:
    """Return the largest difference on a stream that each side continues with its own state; in the middle, rows forget
    different parts."""
    assert program.initial is not None
    names = [tensors.name for tensors in program.inputs[1:]]
    rows = program.inputs[0].shape[0]
    assert isinstance(rows, int)
    longest = program.config.learned_positions
    count, worst = 24 if longest is None else max(1, min(24, longest - 1)), 0.0
    mine, others = list(program.example[1:]), [program.initial[name] for name in names]
    for number in range(count):
        ids = generator.integers(0, program.config.vocabulary.size, (rows, 1))
        if number == count // 2:
            valid = others[2].copy()
            for row in range(rows):
                valid[row, : -1 - row % 5] = False
            mine[2], others[2] = torch.from_numpy(valid.copy()), valid
        expected = program.module(torch.from_numpy(ids), *mine)
        found = run({"ids": ids} | dict(zip(names, others, strict=True)))
        for one, other in zip(found, expected, strict=True):
            worst = _larger(worst, one, other.numpy())
        mine, others = list(expected[1:]), list(found[1:])
    return worst


def _larger(worst: float, found: Array, expected: Array) -> float:
    """Return the larger of the worst difference so far and this one; NaN if there is one."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("nan")
    return float(np.maximum(worst, np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()))
