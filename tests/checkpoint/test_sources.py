"""What conversions are given: folders with strays and several formats, digests, vocabularies, closed folders, pickles
that ask for more than tensors, files larger than memory. Nothing of it passes in silence."""

import hashlib
import json
import os
import pickle
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import pytest
import torch

import segue
from segue.checkpoint.convert import REPORT, convert
from segue.checkpoint.detect import detect
from segue.checkpoint.families import xlnet_transformers
from segue.checkpoint.families.writing import only_for_segue
from segue.checkpoint.folder import load, read_config, save
from segue.checkpoint.heads import load_head, read_head
from segue.checkpoint.safetensors_files import open_safetensors
from segue.checkpoint.source import check_memory
from segue.config import changed
from segue.errors import CheckpointError, SegueError, SegueWarning
from segue.model import LanguageModel
from segue.model.named import named
from segue.text.files import load_tokenizer, save_tokenizer
from tests.checkpoint.test_convert import equal, hf, module_of, reshaped, tensorflow
from tests.checkpoint.test_names import XLNET_CONFIG
from tests.originals import FIXTURES
from tests.text.samples import bpe, characters, released_model

SIZE = 1000


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder for transformers whose model has room for any tokeniser of these tests."""
    torch.manual_seed(0)
    save(LanguageModel(changed(XLNET_CONFIG, vocabulary={"size": SIZE})), tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    return tmp_path / "hf"


# ------------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("stray", ["xlnet_config.json", "checkpoint"])
def test_a_stray_file_does_not_make_a_folder_tensorflow(stray: str, tmp_path: Path) -> None:
    folder = hf(tmp_path)
    (folder / stray).write_text("{}")
    assert detect(folder).kind == "transformers folder"
    convert(folder, tmp_path / "again", compare=False)
    equal(load(tmp_path / "again"), load(tmp_path / "ours"))


def test_a_folder_with_such_a_file_alone_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "xlnet_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="must hold one TensorFlow checkpoint; got none"):
        detect(tmp_path)


def test_two_formats_in_one_folder_are_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hf(tmp_path)
    weights = (folder / "model.safetensors").read_bytes()
    reshaped(folder, "bin")
    (folder / "model.safetensors").write_bytes(weights)
    got = r"got safetensors \(model.safetensors\) and a file of torch.save \(pytorch_model.bin\)"
    with pytest.raises(
        CheckpointError, match=rf"{got}\. Give the path of the file to use: .*{folder}/model.safetensors"
    ):
        convert(folder, tmp_path / "again", compare=False)
    with pytest.raises(CheckpointError, match=got):
        segue.load(folder)
    for name in ("model.safetensors", "pytorch_model.bin"):
        convert(folder / name, tmp_path / name, compare=False)
        equal(load(tmp_path / name), load(tmp_path / "ours"))
    # By name, the safest comes first, as when it is downloaded.
    (tmp_path / "mirror" / "some").mkdir(parents=True)
    folder.rename(tmp_path / "mirror" / "some" / "one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    equal(segue.load("some/one", mirror=tmp_path / "mirror"), load(tmp_path / "ours"))


def test_tensorflow_beside_another_format(tmp_path: Path) -> None:
    folder = tensorflow(FIXTURES / "xlnet" / "A1_gelu_untied", "model", tmp_path)
    torch.save(module_of("C1_softmax_tied"), folder / "model.pt")
    with pytest.raises(CheckpointError, match=r"model.pt\) and a TensorFlow checkpoint \(model.ckpt\)"):
        detect(folder)
    assert detect(folder / "model.ckpt").kind == "TensorFlow checkpoint"
    assert detect(folder / "model.pt").kind == "torch file"


# ------------------------------------------------------------------------------------------------- digests


def test_digests_are_printed_and_compared(theirs: Path, tmp_path: Path) -> None:
    digests = {
        name: hashlib.sha256((theirs / name).read_bytes()).hexdigest() for name in ("model.safetensors", "config.json")
    }
    report = convert(theirs, tmp_path / "plain", compare=False)
    assert report.digests == digests
    assert all(f"sha256 of {name}: {digest}" in report.summary() for name, digest in digests.items())
    assert f"| `config.json` | `{digests['config.json']}` |" in (tmp_path / "plain" / REPORT).read_text()
    given = [digests["model.safetensors"].upper(), f"config.json={digests['config.json']}"]
    convert(theirs, tmp_path / "given", sha256=given, compare=False)
    data = bytearray((theirs / "model.safetensors").read_bytes())
    data[-5] ^= 1  # in the numbers: nothing else notices
    (theirs / "model.safetensors").write_bytes(data)
    convert(theirs, tmp_path / "unnoticed", compare=False)
    with pytest.raises(CheckpointError, match=f"must have the sha256 {digests['model.safetensors']}; got"):
        convert(theirs, tmp_path / "refused", sha256=given, compare=False)
    assert not (tmp_path / "refused").exists()


def test_digests_of_several_files_have_names(theirs: Path, tmp_path: Path) -> None:
    (theirs / "spiece.model").write_bytes(released_model())
    reshaped(theirs, "sharded")
    report = convert(theirs, tmp_path / "parts", compare=False)
    assert len(report.digests) == 5
    assert "sha256 of the 5 files that were read: in conversion.md" in report.summary()
    wrong = "0" * 64
    for given, message in (
        ([wrong], "no file of weights, or several"),
        ([f"model.safetensors={wrong}"], "got one for model.safetensors, which was not read"),
        ([f"spiece.model={wrong}"], "spiece.model must have the sha256 0000"),
        ([f"model-00001-of-00002.safetensors={wrong}"], "00001-of-00002.safetensors must have the sha256 0000"),
        (["abc"], "with 64 hexadecimal digits; got 'abc'"),
    ):
        with pytest.raises(CheckpointError, match=message):
            convert(theirs, tmp_path / "refused", sha256=given, compare=False)
    own = [f"{name}={digest}" for name, digest in convert(tmp_path / "parts", tmp_path / "copy").digests.items()]
    convert(tmp_path / "parts", tmp_path / "copy-2", sha256=own)
    with pytest.raises(CheckpointError, match=r"model.safetensors must have the sha256"):
        convert(tmp_path / "parts", tmp_path / "copy-3", sha256=[wrong])


# -------------------------------------------------------------------------------------------- vocabularies


def test_a_vocabulary_that_is_not_there(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, what in (("nope/spiece.model", "nothing there"), ("empty", "a folder without one")):
        with pytest.raises(CheckpointError, match=f"got {tmp_path / place}, {what}"):
            convert(theirs, tmp_path / "again", vocabulary=tmp_path / place, compare=False)
    assert not (tmp_path / "again").exists()
    assert any(line.startswith("no tokeniser") for line in convert(theirs, tmp_path / "ids", compare=False).summary())


def test_a_vocabulary_without_an_end(theirs: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (theirs, tmp_path / "ours"):
        for place in (tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(CheckpointError, match=r"must be a regular file or a folder; got .*, a device"):
                convert(source, tmp_path / "again", vocabulary=place, compare=False)
    assert not (tmp_path / "again").exists()


def test_fewer_pieces_than_ids_are_a_note(theirs: Path, tmp_path: Path) -> None:
    (theirs / "spiece.model").write_bytes(released_model())
    report = convert(theirs, tmp_path / "again", compare=False)
    assert report.notes == ["spiece.model: 186 tokens for the 1,000 ids of the model; those from 186 on have no text."]


@pytest.mark.parametrize("make", [bpe, characters], ids=["pieces", "characters"])
def test_tokenisers_of_this_project_are_vocabularies_too(make, theirs: Path, tmp_path: Path) -> None:
    """Their files have the names that others use, and mean something else there."""
    save_tokenizer(make(), tmp_path / "tokenizer")
    convert(theirs, tmp_path / "again", vocabulary=tmp_path / "tokenizer", compare=False)
    assert load_tokenizer(tmp_path / "again" / "tokenizer").fingerprint() == make().fingerprint()
    convert(tmp_path / "ours", tmp_path / "completed", vocabulary=tmp_path / "tokenizer", compare=False)
    assert load_tokenizer(tmp_path / "completed" / "tokenizer").fingerprint() == make().fingerprint()
    with pytest.raises(CheckpointError, match="has a tokeniser of its own"):
        convert(tmp_path / "completed", tmp_path / "twice", vocabulary=tmp_path / "tokenizer", compare=False)


def test_without_a_tokeniser_the_path_of_the_user_is_named(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(CheckpointError) as caught:
        segue.open(theirs)
    assert str(caught.value).startswith(f"{theirs} must have a tokeniser to read text; got none.")
    assert f"convert('{theirs}', OUT, vocabulary=FILE)" in str(caught.value)
    assert f"segue convert {theirs} OUT --vocabulary FILE" in caught.value.on_command_line
    assert "cache" not in str(caught.value)


# ------------------------------------------------------------------------------------------------- pickles


class Runs:
    """What a pickle can ask for."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("old", [False, True], ids=["zip", "2019"])
def test_a_call_in_a_pickle_is_not_run_and_is_named(old: bool, tmp_path: Path) -> None:
    module = module_of("C1_softmax_tied")
    module.hook = Runs(tmp_path / "ran")
    torch.save(module, tmp_path / "model.pt", _use_new_zipfile_serialization=not old)
    report = convert(tmp_path / "model.pt", tmp_path / "ours", compare=False)
    assert report.notes[0].startswith("the pickle asks to call posix.system; nothing of it was run.")
    assert not (tmp_path / "ran").exists()
    with pytest.warns(SegueWarning, match="asks to call posix.system"):
        segue.load(tmp_path / "model.pt")


def test_a_whole_module_asks_for_nothing_else(tmp_path: Path) -> None:
    torch.save(module_of("C1_softmax_tied"), tmp_path / "model.pt")
    assert convert(tmp_path / "model.pt", tmp_path / "ours", compare=False).notes == []


def test_a_call_in_a_pickled_vocabulary(tmp_path: Path) -> None:
    words = {"idx2sym": ["<eos>", "the"], "hook": Runs(tmp_path / "ran")}
    (tmp_path / "vocab.pkl").write_bytes(pickle.dumps(words))
    torch.save(module_of("C1_softmax_tied"), tmp_path / "model.pt")
    report = convert(tmp_path / "model.pt", tmp_path / "ours", compare=False)
    assert report.notes[0].startswith("vocab.pkl: the pickle asks to call posix.system")
    assert not (tmp_path / "ran").exists()


# ------------------------------------------------------------------------------------- the machine's limits


def test_a_file_larger_than_memory(tmp_path: Path) -> None:
    """A sparse file of real length, with the config that it claims."""
    folder = hf(tmp_path)
    path, rows = folder / "model.safetensors", 4 * 10**9
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    moved = 0
    for name, entry in sorted(((n, e) for n, e in header.items() if n != "__metadata__"), key=lambda p: p[0]):
        if name in ("transformer.word_embedding.weight", "lm_loss.bias"):
            entry["shape"][0] = rows
        size = 4 * torch.Size(entry["shape"]).numel()
        entry["data_offsets"] = [moved, moved := moved + size]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + moved)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"vocab_size": rows}))
    with pytest.raises(SegueError, match=r"vocabulary.size must be at most .*; got 4000000000"):
        convert(folder, tmp_path / "again", compare=False)
    with pytest.raises(CheckpointError, match=r"must fit into memory; got 40\d,\d{3},\d{3},\d{3} bytes"):
        check_memory(path, open_safetensors(path).tensors)
    assert detect(folder).family is xlnet_transformers.FAMILY  # to look at it costs nothing


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """As someone who may not enter the folder: root may enter any, so it becomes nobody for a while."""
    folder.chmod(0o000)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


def test_a_folder_without_permission(tmp_path: Path) -> None:
    folder, out = hf(tmp_path), Path(gettempdir()) / "segue-never-written"  # nobody may look there
    for look in (detect, segue.load, segue.open, load, read_config, load_head, read_head):
        with closed(folder), pytest.raises(CheckpointError, match=r"must be readable; got .*Permission denied"):
            look(folder)
    with closed(folder), pytest.raises(CheckpointError, match=r"must be readable; got .*Permission denied"):
        convert(folder, out, compare=False)
    with closed(folder), pytest.raises(CheckpointError, match=r"must be readable; got .*Permission denied"):
        convert(tmp_path / "ours", tmp_path / "never")


# ---------------------------------------------------------------------------------- what is said beforehand


def test_models_that_only_segue_reads() -> None:
    assert only_for_segue(XLNET_CONFIG) is None
    assert only_for_segue(named("xlnet-base")) is None
    assert only_for_segue(named("transformer-xl-wt103")) is None
    assert only_for_segue(named("bert-base")) is None  # nobody expects it
    why = only_for_segue(changed(XLNET_CONFIG, norm_first=True))
    assert why == "XLNet of transformers cannot express this model: model.norm_first must be False, got True. " + (
        "Keep it as segue."
    )


def test_messages_speak_to_who_reads_them(tmp_path: Path) -> None:
    """They name arguments to callers of the library, and options to whoever typed a command."""
    source = tensorflow(FIXTURES / "transformer_xl_tf" / "D1_wt103_like", "model", tmp_path)
    with pytest.raises(CheckpointError) as caught:
        segue.load(source)
    assert str(caught.value).endswith(
        "Pass overrides=['model.memory.length=VALUE'] to segue.checkpoint.convert.convert."
    )
    assert caught.value.on_command_line.endswith("With segue convert, add --set model.memory.length=VALUE.")
    save(LanguageModel(changed(XLNET_CONFIG, head_width=5)), tmp_path / "wide")
    with pytest.raises(CheckpointError, match="got 3 \\* 5 and 24") as caught:
        convert(tmp_path / "wide", tmp_path / "out", to="hf")
    assert 'to="tf"' in str(caught.value)
    assert "--to tf" in caught.value.on_command_line
    convert(tmp_path / "wide", tmp_path / "out", to="tf", compare=False)


def test_an_extended_context_names_the_setting(tmp_path: Path) -> None:
    torch.save(module_of("C9_ext_len"), tmp_path / "model.pt")
    (note,) = convert(tmp_path / "model.pt", tmp_path / "ours", compare=False).notes
    assert "Set model.memory.reuse_length=6 to read such segments as there" in note
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SegueWarning)
        assert segue.load(tmp_path / "model.pt").config.memory.reuse_length is None
