"""Files of torch.save: the same tensors as torch.load gives, of every form, and nothing run or taken on trust."""

import io
import pickle
import tracemalloc
import zipfile
from argparse import Namespace
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from segue.checkpoint.pickles import PickledObject
from segue.checkpoint.safetensors_files import ShardedFiles
from segue.checkpoint.torch_files import open_torch, read_object
from segue.errors import CheckpointError
from tests.checkpoint.fuzz import no_acts
from tests.checkpoint.torch_files import check, numbers, refuse, rewrite, write

FIXTURES = Path(__file__).parents[1] / "fixtures" / "transformer_xl_pytorch"
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16]
DTYPES += [torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]
NEWER_DTYPES = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


@FORMATS
@pytest.mark.parametrize("folder", ["C1_softmax_tied", "C2_adaptive_div2"])
def test_whole_modules_of_the_original(folder: str, zipped: bool) -> None:
    path = FIXTURES / folder / ("model.pt" if zipped else "model_legacy.pt")
    with no_acts():
        source = open_torch(path)
    state = np.load(FIXTURES / folder / "state.npz")
    assert list(source.tensors) == list(state)
    for name in state:
        np.testing.assert_array_equal(source.read(name).numpy(), state[name])
    root = source.attributes[""]
    assert (root["n_layer"], root["d_model"], root["n_head"], root["clamp_len"]) == (3, 24, 3, -1)
    assert source.attributes["layers.0.dec_attn"]["pre_lnorm"] is False
    assert source.classes[""] == "mem_transformer.MemTransformerLM"
    assert source.classes["layers.2.dec_attn"] == "mem_transformer.RelPartialLearnableMultiHeadAttn"
    if folder == "C2_adaptive_div2":
        assert source.attributes["crit"]["cutoffs"] == [20, 50, 97]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.width = 3
        self.sizes = [3, (4, {"x": None})]
        self.linear = nn.Linear(3, 3, bias=False)
        self.again = self.linear
        self.nothing = None
        self.register_module("absent", None)
        self.register_parameter("missing", None)
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.register_buffer("unset", None)
        self.several = nn.ParameterList([nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(2))])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(2))})
        self.norm = nn.BatchNorm1d(3)
        self.function = torch.relu


@FORMATS
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source")
def test_modules_are_named_as_in_their_state_dict(tmp_path, zipped: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), nn.ModuleDict({"x": Block(), "y": nn.ModuleList([Block()])}))
    path = write(tmp_path / "model.pt", model, zipped=zipped)
    check(path, model.state_dict())
    source = open_torch(path)
    assert source.attributes["1.y.0"]["sizes"] == [3, (4, {"x": None})]
    assert "function" not in source.attributes["0"]


@FORMATS
@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model_state", "model"])
def test_weights_beside_other_things(tmp_path, zipped: bool, key: str) -> None:
    model = nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    value = {
        "epoch": 4,
        "step": torch.tensor(7),
        key: model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "args": Namespace(n_layer=2, cutoffs=[1, 2]),
        "words": Counter("ab"),
    }
    path = write(tmp_path / "checkpoint.pt", value, zipped=zipped)
    check(path, model.state_dict())
    source = open_torch(path)
    assert source.attributes[""]["epoch"] == 4
    assert source.attributes[""]["words"] == {"a": 1, "b": 1}
    assert source.attributes["args"] == {"n_layer": 2, "cutoffs": [1, 2]}


@FORMATS
def test_every_dtype(tmp_path, zipped: bool) -> None:
    torch.manual_seed(0)
    random = torch.randn(3, 5) * 20
    value = {str(dtype): random.to(dtype) for dtype in [*DTYPES, *(NEWER_DTYPES if zipped else [])]}
    check(write(tmp_path / "dtypes.pt", value, zipped=zipped), value)


@FORMATS
def test_views_share_one_storage(tmp_path, zipped: bool) -> None:
    whole = torch.arange(60.0).view(3, 4, 5)
    value = {
        "whole": whole,
        "tied": whole,
        "offset": whole[1:],
        "transposed": whole.permute(2, 0, 1),
        "stepped": whole[:, ::2, 1::3],
        "scalar": whole[2, 3, 4],
        "empty": whole[:, :0],
        "row": whole[0, 0].expand(1, 5),
        "parameter": nn.Parameter(whole[0]),
    }
    path = write(tmp_path / "views.pt", value, zipped=zipped)
    check(path, value)


def test_tensors_are_of_their_own_memory(tmp_path) -> None:
    source = open_torch(write(tmp_path / "a.pt", {"a": torch.ones(4), "b": torch.ones(4)}))
    source.read("a").zero_()
    assert source.read("a").sum() == 4


def test_a_parameter_with_attributes_and_pickle_protocols(tmp_path) -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.note = "x"
    tensor = torch.ones(3)
    tensor.note = "y"
    for protocol in range(2, 6):
        torch.save({"p": parameter, "t": tensor}, tmp_path / "a.pt", pickle_protocol=protocol)
        check(tmp_path / "a.pt", {"p": parameter.detach(), "t": tensor.detach()})


def test_state_dicts_equal_what_torch_load_gives(tmp_path) -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16)
    path = write(tmp_path / "model.pt", model.state_dict())
    check(path, torch.load(path, weights_only=False))


def test_big_endian_archives(tmp_path) -> None:
    value = {"a": torch.tensor([1.0, -2.5]), "b": torch.tensor([1 + 2j]), "c": torch.tensor([258], dtype=torch.int16)}
    path = write(tmp_path / "big.pt", value)
    widths = {"0": ">f4", "1": ">f4", "2": ">i2"}

    def swap(name: str, data: bytes) -> bytes:
        if name == "byteorder":
            return b"big"
        key = name.removeprefix("data/")
        return np.frombuffer(data, widths[key]).byteswap().tobytes() if key in widths else data

    check(rewrite(path, swap), value)


@pytest.fixture
def path(tmp_path) -> Path:
    return write(tmp_path / "model.pt", {"a": torch.arange(6.0), "b": torch.ones(2)})


def test_archives_written_by_other_programs(path) -> None:
    check(rewrite(path), {"a": torch.arange(6.0), "b": torch.ones(2)})


def test_archives_without_checksums(tmp_path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        path = write(tmp_path / "model.pt", {"a": torch.ones(3)})
    finally:
        torch.serialization.set_crc32_options(True)
    check(path, {"a": torch.ones(3)})


def test_compressed_archives_are_refused(path) -> None:
    refuse(rewrite(path, compression=zipfile.ZIP_DEFLATED), r"of stored entries.*model/data\.pkl' compressed")


def test_a_bomb_is_not_unpacked(tmp_path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"N" * 2**26 + b".")
    assert path.stat().st_size < 2**17
    refuse(path, "compressed")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_twice(path) -> None:
    refuse(rewrite(path, extra=[("model/data/0", b"x")]), r"each name once; got 'model/data/0' twice")


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "model/../x", "a\\b", "model//x", "model/./x"])
def test_names_that_leave_the_archive(path, name: str) -> None:
    refuse(rewrite(path, extra=[(name, b"x")]), "plain relative names")


def test_changed_numbers(path) -> None:
    data = path.read_bytes()
    old = numbers(torch.arange(6.0))
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, b"\x01" + old[1:]))
    refuse(path, r"^a in .* must have the checksum written with it; got another\. Copy")


@FORMATS
def test_truncated_files(tmp_path, zipped: bool) -> None:
    path = write(tmp_path / "model.pt", {"a": torch.arange(6.0)}, zipped=zipped)
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        refuse(path, "must")
    if not zipped:
        path.write_bytes(data + b"x")
        refuse(path, "must end with its last storage; got 1 bytes more")


def test_other_files(tmp_path) -> None:
    refuse(tmp_path / "nothing.pt", "must be a readable file")
    refuse(tmp_path, "must be a readable file")
    (tmp_path / "text.pt").write_text("hello")
    refuse(tmp_path / "text.pt", r"must be a file of torch\.save; got one that starts with b'hell'")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"a": 1}))
    refuse(tmp_path / "plain.pt", r"must be a file of torch\.save")
    refuse(write(tmp_path / "list.pt", [torch.ones(1)]), "must hold a module or named tensors; got a list")
    refuse(write(tmp_path / "none.pt", {"a": 1}), r"must hold named tensors; got none")


def test_torchscript(tmp_path) -> None:
    path = write(tmp_path / "model.pt", {"a": torch.ones(1)})
    refuse(rewrite(path, extra=[("model/constants.pkl", b"")]), "got TorchScript")


def test_sparse_tensors_in_a_module(tmp_path) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("sparse", torch.eye(2).to_sparse())
    refuse(write(tmp_path / "model.pt", model), r"must have dense tensors.*_rebuild_sparse_tensor as 'sparse'")


# Vocabularies and shards


class Vocab:
    def __init__(self) -> None:
        self.idx2sym = ["<eos>", "the"]
        self.sym2idx = OrderedDict({"<eos>": 0, "the": 1})


def test_vocabularies_in_every_form(tmp_path) -> None:
    written = Vocab().__dict__
    (tmp_path / "plain.bin").write_bytes(pickle.dumps(written))
    for path in (
        tmp_path / "plain.bin",
        write(tmp_path / "zip.bin", written),
        write(tmp_path / "old.bin", written, zipped=False),
    ):
        assert read_object(path) == written
    found = read_object(write(tmp_path / "object.bin", Vocab()))
    assert isinstance(found, PickledObject)
    assert found.state == written
    with pytest.raises(CheckpointError, match="readable file"):
        read_object(tmp_path / "none.bin")


def test_sharded_files(tmp_path) -> None:
    write(tmp_path / "one.bin", {"a": torch.ones(1)})
    write(tmp_path / "two.bin", {"b": torch.zeros(2)})
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text('{"weight_map": {"b": "two.bin", "a": "one.bin"}}')
    source = ShardedFiles(index, open_torch)
    assert list(source.tensors) == ["b", "a"]
    assert source.read("b").tolist() == [0, 0]


def test_reading_is_lazy(tmp_path) -> None:
    """A tensor of 4 numbers from a file of 40 MB takes little memory."""
    buffer = io.BytesIO()
    torch.save({"large": torch.zeros(10_000_000), "small": torch.ones(4)}, buffer)
    path = tmp_path / "large.pt"
    path.write_bytes(buffer.getvalue())
    del buffer
    tracemalloc.start()
    try:
        assert open_torch(path).read("small").sum() == 4
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_a_pickle_of_an_archive_is_not_read_whatever_its_size(tmp_path, monkeypatch) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    monkeypatch.setattr("segue.checkpoint.torch_files.MAX_PICKLE", 10)
    with pytest.raises(CheckpointError, match=r"a pickle of at most 10 bytes; got \d+\. Save model"):
        open_torch(tmp_path / "a.pt")
