"""Exported programs compute what the model computes: as modules, in onnxruntime, and after torch's exporters."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.checkpoint.folder import save
from segue.checkpoint.heads import HeadConfig, build, save_head
from segue.config import changed
from segue.errors import CheckpointError, ConfigError, SegueWarning
from segue.infer import export as exporting
from segue.infer.export import ExportSettings, export, exported_program, step_program
from segue.infer.export_modules import Encoder, StreamState, StreamStep
from segue.model import Batch, LanguageModel
from segue.model.cache import Cache
from segue.model.streaming import Streamer
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.symbols import ByteTokenizer
from tests.model.test_streaming import STREAMED
from tests.tiny import MODELS, noisy, random_ids

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

MEMORY = 6
STATE = ["key", "value", "valid", "position"]


def small(name: str, **settings: object) -> LanguageModel:
    """In float32, of one layer, so that exporters are quick; memory of zeros, which is the harder way to begin."""
    memory = {"length": 16, "initial": "zeros", "reuse_length": None}
    return noisy(changed(MODELS[name], num_layers=1, memory=memory, **settings)).float()


def read(step: StreamStep, ids_BQ: Tensor, state: StreamState) -> tuple[Tensor, list[Tensor]]:
    found, parts = [], list(state)
    with torch.no_grad():
        for ids_B1 in ids_BQ.split(1, dim=1):
            log_p, *parts = step(ids_B1, *parts)
            found.append(log_p)
    return torch.stack(found, dim=1), parts


# --------------------------------------------------------------------------------------------------- the modules


OTHER_START = {
    f"{name}-other-start": changed(
        MODELS[name], memory={"initial": "empty" if MODELS[name].memory.initial == "zeros" else "zeros"}
    )
    for name in ("transformer-xl-enwik8-base", "xlnet-base", "rotary", "pre-norm", "permutation-rotary")
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*MODELS, *OTHER_START])
def test_the_encoder_is_the_trunk(name: str) -> None:
    model, ids = noisy((MODELS | OTHER_START)[name]), random_ids(3, 11)
    real = torch.arange(11) < torch.tensor([[11], [4], [1]])
    expected = model.trunk(Batch(ids_BQ=ids, real_BQ=real)).hidden_BQD
    found = Encoder(model.trunk)(ids, real)
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-9)
    other = Encoder(model.trunk)(ids.where(real, (ids + 1) % 23), real)
    assert torch.equal(other[real], found[real])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*STREAMED, *OTHER_START])
def test_a_step_is_the_streamer(name: str) -> None:
    model, ids = noisy((STREAMED | OTHER_START)[name]), random_ids(2, 16)
    streamer, step = Streamer(model, memory_length=MEMORY), StreamStep(model, memory_length=MEMORY)
    expected = streamer.logits(streamer.read(ids, streamer.new_cache(2), places=16)).log_softmax(-1)
    found, state = read(step, ids, step.initial_state(2))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    assert [part.shape for part in state] == [part.shape for part in step.initial_state(2)]
    assert state[3].tolist() == [16, 16]


def test_a_step_with_a_shorter_attention_span() -> None:
    for span in (1, 2, 4):
        model = noisy(changed(STREAMED["transformer-xl-enwik8-base"], attention_span=span))
        streamer, step, ids = Streamer(model, memory_length=9), StreamStep(model, memory_length=9), random_ids(1, 12)
        expected = streamer.logits(streamer.read(ids, streamer.new_cache(), places=12)).log_softmax(-1)
        torch.testing.assert_close(read(step, ids, step.initial_state())[0], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["xlnet-base", "permutation-rotary", "absolute"])
def test_rows_of_different_age_go_on_where_a_streamer_stopped(name: str) -> None:
    model = noisy(changed(STREAMED[name], memory={"reuse_length": None}))
    streamer, step = Streamer(model, memory_length=MEMORY), StreamStep(model, memory_length=MEMORY)
    caches = [streamer.new_cache() for _ in range(3)]
    for length, cache in zip((2, 5, 14), caches, strict=True):
        streamer.read(random_ids(1, length, seed=length), cache)
    joined, ids = Cache.join(caches), random_ids(3, 9, seed=1)
    found, _ = read(step, ids, step.state_of(joined))
    expected = streamer.logits(streamer.read(ids, joined, places=9)).log_softmax(-1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_the_weights_are_those_of_the_model() -> None:
    model = noisy(STREAMED["xlnet-base"])
    theirs = {parameter.data_ptr() for parameter in model.parameters()}
    assert {parameter.data_ptr() for parameter in StreamStep(model, memory_length=3).parameters()} <= theirs


def test_an_encoder_shares_the_weights_and_leaves_the_kernels_of_the_trunk() -> None:
    trunk = noisy(MODELS["two-direction"]).trunk
    encoder = Encoder(trunk)
    assert [id(parameter) for parameter in encoder.parameters()] == [id(parameter) for parameter in trunk.parameters()]
    assert all(layer.attention.kernel is None for layer in trunk.reader.each_layer())
    assert all(layer.attention.kernel is not None for layer in encoder.trunk.reader.each_layer())


# ----------------------------------------------------------------------------------------------------- exported


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model folder of each of two kinds."""
    place = tmp_path_factory.mktemp("export")
    tokenizer = ByteTokenizer(specials=("eod",))
    save_tokenizer(tokenizer, place / "tokenizer")
    words = {"size": tokenizer.size, "cutoffs": [100, 180], "shrink": 2}
    save(small("transformer-xl-lm1b", vocabulary=words), place / "xl", tokenizer=place / "tokenizer")
    save(small("xlnet-base"), place / "xlnet")
    return {"xl": place / "xl", "xlnet": place / "xlnet"}


@pytest.fixture(scope="session")
def folders(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The models, and what `export` makes of them: in ONNX, which takes seconds, so what needs it not asks for
    `models`."""
    place = tmp_path_factory.mktemp("exported")
    export(models["xl"], place / "step", ExportSettings(what="step", rows=2))
    export(models["xlnet"], place / "encoder", ExportSettings(what="encoder"))
    return {**models, "step": place / "step", "encoder": place / "encoder"}


def load(folder: Path) -> LanguageModel:
    from segue.checkpoint.folder import load as load_folder

    return load_folder(folder).eval()


def session(folder: Path) -> object:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(folder / "model.onnx", options)


def test_a_stream_in_onnxruntime(folders: dict[str, Path]) -> None:
    """Rows of different age: the second one starts anew after nine tokens."""
    model, runner = load(folders["xl"]), session(folders["step"])
    streamer, state = Streamer(model, memory_length=16), dict(np.load(folders["step"] / "initial.npz"))
    ids = random_ids(2, 40)
    expected = [
        streamer.logits(streamer.read(part, streamer.new_cache(), places=part.shape[1])).log_softmax(-1)[0]
        for part in (ids[:1], ids[1:, :9], ids[1:, 9:])
    ]
    expected_BQV = torch.stack([expected[0], torch.cat(expected[1:])]).numpy()
    initial = {name: part.copy() for name, part in state.items()}
    for number in range(40):
        if number == 9:
            for name in ("key", "value"):
                state[name][:, 1] = initial[name][:, 1]
            for name in ("valid", "position"):
                state[name][1] = initial[name][1]
        log_p, *after = runner.run(None, {"ids": ids[:, number : number + 1].numpy(), **state})
        np.testing.assert_allclose(log_p, expected_BQV[:, number], rtol=0, atol=1e-4)
        state = dict(zip(STATE, after, strict=True))
    assert state["position"].tolist() == [40, 31]


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 19), (5, 1), (3, 8)])
def test_an_encoder_in_onnxruntime(folders: dict[str, Path], rows: int, length: int) -> None:
    """Shapes that the exporter has not seen."""
    model, runner, ids = load(folders["xlnet"]), session(folders["encoder"]), random_ids(rows, length)
    real = torch.arange(length) < torch.arange(length, length - rows, -1).clamp(min=1)[:, None]
    expected = model.trunk(Batch(ids_BQ=ids, real_BQ=real)).hidden_BQD.detach()
    (found,) = runner.run(None, {"ids": ids.numpy(), "real": real.numpy()})
    np.testing.assert_allclose(found[real.numpy()], expected[real].numpy(), rtol=0, atol=1e-4)


def test_an_id_that_is_not_in_the_vocabulary_is_refused(folders: dict[str, Path]) -> None:
    state = dict(np.load(folders["step"] / "initial.npz"))
    with pytest.raises(Exception, match="out of data bounds"):
        session(folders["step"]).run(None, {"ids": np.full((2, 1), 1000), **state})


def test_what_is_in_the_folder(folders: dict[str, Path]) -> None:
    said = json.loads((folders["step"] / "export.json").read_text())
    state = np.load(folders["step"] / "initial.npz", allow_pickle=False)
    assert (said["what"], said["objective"], said["begin"], said["opset"]) == ("step", "causal", 256, 20)
    assert said["largest_difference"] <= 1e-4
    assert [one["name"] for one in said["inputs"]] == ["ids", *STATE]
    for one in said["inputs"][1:]:
        assert list(state[one["name"]].shape) == one["shape"]
        assert state[one["name"]].dtype == one["dtype"]
    for folder, names in (("step", said), ("encoder", json.loads((folders["encoder"] / "export.json").read_text()))):
        runner = session(folders[folder])
        assert [part.name for part in runner.get_inputs()] == [one["name"] for one in names["inputs"]]
        assert [part.name for part in runner.get_outputs()] == [one["name"] for one in names["outputs"]]
        assert [part.shape for part in runner.get_inputs()] == [one["shape"] for one in names["inputs"]]
    assert load_tokenizer(folders["step"] / "tokenizer").size == 257
    assert not (folders["encoder"] / "tokenizer").exists()


@pytest.mark.parametrize("name", ["step", "encoder"])
def test_the_example_of_the_card_runs(folders: dict[str, Path], name: str) -> None:
    card = (folders[name] / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line]) <= 10
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folders[name], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_a_program_of_torch_export(models: dict[str, Path], tmp_path: Path) -> None:
    """Files of one's own may be loaded; the code of this project never does."""
    export(models["xlnet"], tmp_path / "step", ExportSettings(what="step", format="torch", memory_length=5))
    assert "run any code" in (tmp_path / "step" / "README.md").read_text()
    program = torch.export.load(tmp_path / "step" / "model.pt2").module()
    step, ids = StreamStep(load(models["xlnet"]), memory_length=5), random_ids(1, 8)
    initial = np.load(tmp_path / "step" / "initial.npz")
    state = [torch.from_numpy(initial[name]) for name in STATE]
    found = []
    for number in range(8):
        log_p, *state = program(ids[:, number : number + 1], *state)
        found.append(log_p)
    expected, _ = read(step, ids, step.initial_state())
    torch.testing.assert_close(torch.stack(found, dim=1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["rotary", "permutation-shaw", "permutation-buckets", "learned-relative", "gpt", "permutation-alibi"]
)
def test_every_kind_of_position_is_exported(name: str) -> None:
    """torch.export sees one graph, with nothing that depends on the numbers."""
    model = small(name) if name != "gpt" else noisy(changed(MODELS["gpt"], num_layers=1)).float()
    program = step_program(model, memory_length=4, rows=2)
    inputs = (random_ids(2, 1), *(torch.rand_like(x) if x.is_floating_point() else x for x in program.example[1:]))
    expected, found = program.module(*inputs), exported_program(program).module()(*inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_a_compiled_step() -> None:
    """Whole: `fullgraph` refuses whatever a compiler cannot look into."""
    step, ids = StreamStep(small("xlnet-base"), memory_length=5), random_ids(2, 4)
    state = step.initial_state(2)
    with torch.no_grad():
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        expected, found = list(step(ids[:, :1], *state)), list(compiled(ids[:, :1], *state))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


# ------------------------------------------------------------------------------------------------------ refused


def test_what_differs_is_not_written(models: dict[str, Path], tmp_path: Path, monkeypatch) -> None:
    write = exporting._write_torch

    def wrong(program, folder):
        run = write(program, folder)
        return lambda inputs: [part + np.float32(2e-4) if part.dtype == np.float32 else part for part in run(inputs)]

    monkeypatch.setattr(exporting, "_write_torch", wrong)
    with pytest.raises(CheckpointError, match=r"must equal its model to 0.0001; got a difference of 0\.0\d+ "):
        export(models["xlnet"], tmp_path / "out", ExportSettings(what="step", format="torch"))
    assert list(tmp_path.iterdir()) == []


def test_nan_is_not_written(tmp_path: Path) -> None:
    model = small("xlnet-base")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    save(model, tmp_path / "model")
    with pytest.raises(CheckpointError, match="difference of nan"), pytest.warns(SegueWarning, match="holds NaN"):
        export(tmp_path / "model", tmp_path / "out", ExportSettings(what="step", format="torch"))
    assert not (tmp_path / "out").exists()


def test_without_the_packages(models: dict[str, Path], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(
        ConfigError, match=r"onnxscript is not installed. Install them: pip install onnx onnxscript onnxruntime"
    ):
        export(models["xlnet"], tmp_path / "out", ExportSettings(what="encoder"))


def test_a_folder_that_is_in_the_way(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for replace in (False, True):
        with pytest.raises(ConfigError, match="must be an export that segue wrote, or not exist yet"):
            export(folders["xlnet"], tmp_path / "mine", ExportSettings(what="encoder"), replace=replace)
    with pytest.raises(ConfigError, match="replace it with --replace"):
        export(folders["xlnet"], folders["encoder"], ExportSettings(what="encoder"))


def test_settings_that_mean_nothing(models: dict[str, Path], tmp_path: Path) -> None:
    cases = [
        (ExportSettings(what="encoder", rows=2), "rows applies only to a step"),
        (ExportSettings(what="encoder", memory_length=2), "memory_length applies only to a step"),
        (ExportSettings(what="step", memory_length=0), "memory_length must be at least 1; got 0"),
        (ExportSettings(what="step", memory_length=10**9, format="torch"), "at most 4,294,967,296 bytes"),
    ]
    for settings, message in cases:
        with pytest.raises(ConfigError, match=message):
            export(models["xlnet"], tmp_path / "out", settings)
    save(noisy(MODELS["gpt"]), tmp_path / "gpt")
    with pytest.raises(ConfigError, match="no memory of its own"):
        export(tmp_path / "gpt", tmp_path / "out", ExportSettings(what="step", format="torch"))
    save(noisy(MODELS["bert-base"]), tmp_path / "bert")
    with pytest.raises(ConfigError, match="a stream needs"):
        export(tmp_path / "bert", tmp_path / "out", ExportSettings(what="step", format="torch", memory_length=4))
    assert not (tmp_path / "out").exists()


def test_a_head_is_left_out_and_said_so(tmp_path: Path) -> None:
    """Also for a model that reads in both directions."""
    head = HeadConfig(kind="sequence_classifier", num_labels=3)
    config = changed(MODELS["transformer-xl-enwik8-base"], memory=None, directions="both", num_layers=1)
    save_head(build(config, head), head, tmp_path / "model")
    done = export(tmp_path / "model", tmp_path / "out", ExportSettings(what="encoder", format="torch"))
    assert done.left_out == "sequence_classifier"
    assert done.largest_difference < 1e-4
    assert "a sequence classifier, that is not part" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(ConfigError, match="a step needs a language model"):
        export(tmp_path / "model", tmp_path / "step", ExportSettings(what="step", format="torch"))
