"""Conversions through files: every format in, every format out, reports, tokenisers, refusals."""

import json
import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import segue
from segue.checkpoint.card import Facts
from segue.checkpoint.convert import REPORT, convert
from segue.checkpoint.detect import detect
from segue.checkpoint.families import xlnet_transformers
from segue.checkpoint.folder import load, save
from segue.checkpoint.heads import build, load_head, save_head
from segue.checkpoint.tensorflow import open_tensorflow, write_tensorflow
from segue.errors import CheckpointError, DataError, SegueError, SegueWarning
from segue.model import Batch, LanguageModel
from segue.text.files import load_tokenizer
from tests.checkpoint.test_names import HEADS, PYTORCH, XLNET_CONFIG, head_of, variant
from tests.originals import FIXTURES, arrays, expected, load_pytorch, load_tensorflow, load_xlnet, tensors
from tests.text.samples import released_model
from tests.tiny import MODELS


def tensorflow(folder: Path, name: str, tmp_path: Path) -> Path:
    """A TensorFlow checkpoint of a fixture, with its settings beside it."""
    place = tmp_path / "tf"
    variables = tensors(arrays(folder / f"{name}.npz"))
    write_tensorflow(place / "model.ckpt", variables)
    if (folder / "xlnet_config.json").is_file():
        (place / "xlnet_config.json").write_bytes((folder / "xlnet_config.json").read_bytes())
    return place


def equal(one: nn.Module, other: nn.Module) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


class MemTransformerLM(nn.Module):
    """Like the original's module: its attributes and its state dict, without its code."""

    def __init__(self, state: dict[str, Tensor], attributes: dict[str, dict[str, Any]]) -> None:
        super().__init__()
        for name, value in state.items():
            *path, last = name.split(".")
            part: nn.Module = self
            for step in path:
                if step not in part._modules:
                    part.add_module(step, nn.Module())
                part = part._modules[step]
            part.register_parameter(last, nn.Parameter(value))
        for path, values in attributes.items():
            self.get_submodule(path).__dict__.update(values)


def module_of(name: str) -> MemTransformerLM:
    folder = FIXTURES / "transformer_xl_pytorch" / name
    settings = json.loads((folder / "config.json").read_text())["model"]
    root = {key: settings[key] for key in settings if key not in ("tie_weight", "tie_projs", "cutoffs", "dropout")}
    cutoffs = [*settings["cutoffs"], settings["n_token"]]
    attributes = {"": root, "crit": {"cutoffs": cutoffs}, "layers.0.dec_attn": {"pre_lnorm": settings["pre_lnorm"]}}
    return MemTransformerLM(tensors(arrays(folder / "state.npz")), attributes)


# ------------------------------------------------------------------------------------------- in from others


@pytest.mark.parametrize("name", ["A1_gelu_untied", "A2_relu_tied"])
def test_xlnet_from_tensorflow_and_back(name: str, tmp_path: Path) -> None:
    source = tensorflow(FIXTURES / "xlnet" / name, "model", tmp_path)
    report = convert(source, tmp_path / "ours", compare=False)
    model = load(tmp_path / "ours")
    equal(model, load_xlnet(name, torch.float32))
    want = expected(FIXTURES / "xlnet" / name, "expected", torch.float32)
    with torch.no_grad():
        hidden = model.eval()(Batch(ids_BQ=want["enc.input_ids"].T.long())).output.hidden_BQD
    torch.testing.assert_close(hidden, want["enc_plain.output"].transpose(0, 1), rtol=0, atol=1e-5)
    text = (tmp_path / "ours" / REPORT).read_text()
    assert text == report.markdown()
    assert all(f"`{key}`" in text for key in arrays(FIXTURES / "xlnet" / name / "model.npz"))
    assert "| `global_step` | - | [] | the step of the training |" in text

    straight = convert(source, tmp_path / "hf", to="hf", compare=False).markdown()
    assert "`model/transformer/r_w_bias`" in straight
    assert "`transformer.layer.0.rel_attn.r_w_bias`" in straight
    convert(tmp_path / "ours", tmp_path / "back", to="tf", compare=False)
    theirs, back = open_tensorflow(source), open_tensorflow(tmp_path / "back")
    assert theirs.tensors == back.tensors
    assert all(torch.equal(theirs.read(key), back.read(key)) for key in theirs.tensors if key != "global_step")
    settings = [json.loads((place / "xlnet_config.json").read_text()) for place in (source, tmp_path / "back")]
    assert settings[0] == settings[1]


@pytest.mark.parametrize("name", ["D1_wt103_like", "D2_enwik8_like", "D3_lm1b_like", "D4_wt103_base_like"])
def test_transformer_xl_from_tensorflow_and_back(name: str, tmp_path: Path) -> None:
    source = tensorflow(FIXTURES / "transformer_xl_tf" / name, "model", tmp_path)
    with pytest.raises(CheckpointError, match=r"model\.memory\.length must be given"):
        convert(source, tmp_path / "ours", compare=False)
    convert(source / "model.ckpt", tmp_path / "ours", overrides=["model.memory.length=8"], compare=False)
    model = load(tmp_path / "ours")
    other = load_tensorflow(name, "train_like", torch.float32)
    equal(model, other)
    assert model.config.memory == other.config.memory
    convert(tmp_path / "ours", tmp_path / "back", to="tf", compare=False)
    theirs, back = open_tensorflow(source), open_tensorflow(tmp_path / "back")
    assert theirs.tensors == back.tensors
    assert all(torch.equal(theirs.read(key), back.read(key)) for key in theirs.tensors if key != "global_step")
    assert "--mem_len=8\n" in (tmp_path / "back" / "flags.txt").read_text()


def test_the_step_of_the_training_goes_along(tmp_path: Path) -> None:
    """From the state of a run, or from TensorFlow; a model alone has none, and 0 is written."""

    def also(new: Path) -> None:
        (new / "training").mkdir()
        (new / "training" / "state.json").write_text('{"step": 1234}')

    save(LanguageModel(XLNET_CONFIG), tmp_path / "last", also=also)
    save(LanguageModel(XLNET_CONFIG), tmp_path / "alone")
    for source, out, step in (("last", "a", 1234), ("a", "b", 1234), ("alone", "c", 0)):
        convert(tmp_path / source, tmp_path / out, to="tf", compare=False)
        assert int(open_tensorflow(tmp_path / out).read("global_step")) == step


def test_settings_may_not_contradict_the_shapes(tmp_path: Path) -> None:
    source = tensorflow(FIXTURES / "transformer_xl_tf" / "D2_enwik8_like", "model", tmp_path)
    for override in ("model.width=48", "model.num_layers=2", "model.positions.shared_biases=false", "model.width=x"):
        with pytest.raises(SegueError):
            convert(source, tmp_path / "ours", overrides=["model.memory.length=8", override], compare=False)
    assert not (tmp_path / "ours").exists()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [name for name in PYTORCH if not name.startswith(("C4", "C9"))])
@pytest.mark.parametrize("old", [False, True], ids=["zip", "2019"])
def test_original_module(name: str, old: bool, tmp_path: Path) -> None:
    """A whole pickled module knows its settings; then out as safetensors, and in again."""
    path = tmp_path / "model.pt"
    torch.save(module_of(name), path, _use_new_zipfile_serialization=not old)
    convert(path, tmp_path / "ours", compare=False)
    other, _ = load_pytorch(name, torch.float32)
    model = load(tmp_path / "ours")
    equal(model, other)
    assert model.config.norm_first == other.config.norm_first
    assert model.config.memory == other.config.memory
    assert model.config.positions == other.config.positions

    convert(tmp_path / "ours", tmp_path / "original", to="original", compare=False)
    state = arrays(FIXTURES / "transformer_xl_pytorch" / name / "state.npz")
    with safe_open(tmp_path / "original" / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(state)
        assert file.metadata() == {"format": "pt"}
    convert(tmp_path / "original", tmp_path / "again", compare=False)
    assert load(tmp_path / "again").config == model.config
    equal(load(tmp_path / "again"), model)


def test_original_state_dict(tmp_path: Path) -> None:
    """A bare state dict shows shapes alone; data-parallel training puts `module.` before each name."""
    state = tensors(arrays(FIXTURES / "transformer_xl_pytorch" / "C7_adaptive_div1" / "state.npz"))
    torch.save({f"module.{name}": value for name, value in state.items()}, tmp_path / "state.pt")
    with pytest.raises(CheckpointError, match=r"model\.vocabulary\.cutoffs, model\.memory\.length must be given"):
        convert(tmp_path / "state.pt", tmp_path / "ours", compare=False)
    given = ["model.vocabulary.cutoffs=[20, 50]", "model.memory.length=8"]
    report = convert(tmp_path / "state.pt", tmp_path / "ours", overrides=given, compare=False)
    assert any("norm_first" in note for note in report.notes)
    equal(load(tmp_path / "ours"), load_pytorch("C7_adaptive_div1", torch.float32)[0])


def test_fine_tuned_tensorflow_heads(tmp_path: Path) -> None:
    source = tensorflow(FIXTURES / "xlnet" / "A1_gelu_untied", "finetuned", tmp_path)
    with pytest.raises(CheckpointError, match="mnli_matched, sts-b, choice, answers"):
        convert(source, tmp_path / "none", compare=False)
    want = expected(FIXTURES / "xlnet" / "A1_gelu_untied", "expected", torch.float32)
    batch = Batch(
        ids_BQ=want["enc.input_ids"].T.long(),
        real_BQ=want["enc.input_mask"].T == 0,
        segments_BQ=want["enc.seg_ids"].T.long(),
    )
    for scope, key in (("mnli_matched", "cls"), ("sts-b", "reg")):
        guessed = convert(source, tmp_path / f"{scope}-guessed", head=scope, compare=False)
        assert any(note.startswith("head.summary: attention, because the file has weights") for note in guessed.notes)
        report = convert(source, tmp_path / scope, head=scope, overrides=["head.summary=last"], compare=False)
        assert not any("head.summary" in note for note in report.notes)
        model, head = load_head(tmp_path / scope)
        assert head.kind == "sequence_classifier"
        with torch.no_grad():
            logits = model.eval()(batch).logits
        torch.testing.assert_close(logits.squeeze(-1), want[f"{key}.logits"], rtol=0, atol=1e-5)
    convert(source, tmp_path / "trunk", head="none", compare=False)
    assert not load(tmp_path / "trunk").softmax.token_biases[0].any()
    with pytest.raises(CheckpointError, match="the head must be one of"):
        convert(source, tmp_path / "no", head="cola", compare=False)


# ------------------------------------------------------------------------------------------- out to others


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("form", ["safetensors", "sharded", "bin"])
def test_transformers_folder_and_back(name: str, form: str, tmp_path: Path) -> None:
    """Out as a folder for transformers, then in again from each of the forms that such folders have."""
    torch.manual_seed(0)
    head = head_of(name)
    if head is None:
        save(LanguageModel(XLNET_CONFIG), tmp_path / "ours")
    else:
        save_head(build(XLNET_CONFIG, head), head, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    assert detect(tmp_path / "hf").family is xlnet_transformers.FAMILY
    reshaped(tmp_path / "hf", form)
    convert(tmp_path / "hf", tmp_path / "again", compare=False)
    if head is None:
        equal(load(tmp_path / "again"), load(tmp_path / "ours"))
    else:
        again, ours = load_head(tmp_path / "again"), load_head(tmp_path / "ours")
        equal(again[0], ours[0])
        assert again[1] == ours[1]


def reshaped(folder: Path, form: str) -> None:
    """The weights of a folder in another form."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if form == "bin":
        torch.save(state, folder / "pytorch_model.bin")
    if form == "sharded":
        names = sorted(state)
        where = {name: f"model-0000{1 + (i % 2)}-of-00002.safetensors" for i, name in enumerate(names)}
        for shard in set(where.values()):
            save_file({name: state[name] for name in names if where[name] == shard}, folder / shard)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    if form != "safetensors":
        path.unlink()


@pytest.mark.parametrize("name", ["one_bin", "shrinking", "reversed_clusters", "one_bias_a_layer", "narrow_apart"])
def test_transformer_xl_for_transformers_and_back(name: str, tmp_path: Path) -> None:
    model = LanguageModel(variant(name))
    save(model, tmp_path / "ours")
    report = convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    assert "model.memory.initial: 'empty' here, 'zeros' there." in report.notes
    convert(tmp_path / "hf", tmp_path / "again", compare=False)
    with torch.no_grad():
        ids_BQ = torch.arange(20)[None] * 3
        batch = Batch(ids_BQ=ids_BQ)
        one, other = (m.adjusted(memory=None).eval() for m in (model, load(tmp_path / "again")))
        first, second = (m.logits(m(batch).output.hidden_BQD) for m in (one, other))
    torch.testing.assert_close(first, second)


def test_what_others_cannot_express(tmp_path: Path) -> None:
    for name, to, message in (
        ("bert-base", "hf", "model.num_heads * model.head_width must be model.width for BERT"),
        ("gpt", "original", "cannot express this model: model.activation"),
        ("shaw", "tf", "positions.kind"),
        ("one_bias_a_layer", "original", "model.positions.shared_biases must be True, got False"),
        ("norm_first", "tf", "model.norm_first must be False, got True"),
        ("untied_softmax", "tf", "model.vocabulary.tie_weights must be True, got False"),
    ):
        config = MODELS[name] if name in MODELS else variant(name)
        save(LanguageModel(config), tmp_path / name)
        with pytest.raises(CheckpointError, match=re.escape(message)):
            convert(tmp_path / name, tmp_path / "out", to=to, compare=False)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------------------- tokenisers


def test_pieces_travel_with_the_model(tmp_path: Path) -> None:
    source = tensorflow(FIXTURES / "xlnet" / "A1_gelu_untied", "model", tmp_path)
    (source / "spiece.model").write_bytes(released_model())
    with pytest.raises(CheckpointError, match="at most the 64 ids of the model"):
        convert(source, tmp_path / "small", compare=False)
    config = XLNET_CONFIG.model_copy(update={"vocabulary": XLNET_CONFIG.vocabulary.model_copy(update={"size": 1000})})
    save(LanguageModel(config), tmp_path / "plain")
    convert(tmp_path / "plain", tmp_path / "hf", to="hf", compare=False)
    (tmp_path / "hf" / "spiece.model").write_bytes(released_model())
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    convert(tmp_path / "hf", tmp_path / "ours", compare=False)
    tokenizer = load_tokenizer(tmp_path / "ours" / "tokenizer")
    assert tokenizer.encode("KEEPER").tolist() == tokenizer.encode("keeper").tolist()
    convert(tmp_path / "ours", tmp_path / "out", to="hf", compare=False)
    assert (tmp_path / "out" / "spiece.model").read_bytes() == released_model()
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["do_lower_case"] is True


class Vocab:
    """Like the original's class."""


@pytest.mark.parametrize("form", ["txt", "bin", "pkl", "corpus"])
def test_word_vocabularies(form: str, tmp_path: Path) -> None:
    words = ["<eos>", "the", "<unk>", "Ship", "船"]
    state = {"idx2sym": words, "sym2idx": {word: i for i, word in enumerate(words)}, "lower_case": False}
    vocab = Vocab()
    vocab.__dict__.update(state)
    path = tmp_path / "v" / {"txt": "vocab.txt", "bin": "vocab.bin", "pkl": "vocab.pkl", "corpus": "cache.pkl"}[form]
    path.parent.mkdir()
    match form:
        case "txt":
            path.write_text("\n".join(words), encoding="utf-8")
        case "bin":
            torch.save(state, path)
        case "pkl":
            path.write_bytes(pickle.dumps(state))
        case "corpus":
            path.write_bytes(pickle.dumps({"vocab": vocab}))
    torch.save(module_of("C1_softmax_tied"), tmp_path / "model.pt")
    convert(tmp_path / "model.pt", tmp_path / "ours", vocabulary=path, compare=False)
    tokenizer = load_tokenizer(tmp_path / "ours" / "tokenizer")
    assert tokenizer.encode("the 船 sank\n").tolist() == [1, 4, 2, 0]
    convert(tmp_path / "ours", tmp_path / "out", to="original", compare=False)
    assert (tmp_path / "out" / "vocab.txt").read_text(encoding="utf-8").split() == words


def converted_vocabulary(symbols: list[str], tmp_path: Path) -> tuple[Any, list[str]]:
    """A tokeniser through a pickled corpus into a model folder, and the notes on it; then out again."""
    vocab = Vocab()
    vocab.__dict__.update({"idx2sym": symbols, "lower_case": False})
    (tmp_path / "cache.pkl").write_bytes(pickle.dumps({"vocab": vocab}))
    torch.save(module_of("C1_softmax_tied"), tmp_path / "model.pt")
    report = convert(tmp_path / "model.pt", tmp_path / "ours", compare=False)
    convert(tmp_path / "ours", tmp_path / "out", to="original", compare=False)
    assert (tmp_path / "out" / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1] == symbols
    return load_tokenizer(tmp_path / "ours" / "tokenizer"), list(report.notes)


def test_the_vocabulary_of_enwik8_is_bytes(tmp_path: Path) -> None:
    """As `prep_enwik8.py` writes them: the number of each byte, and a real line break, which `split` then drops."""
    text = "A <b>船</b>\ngoes on\n\n"
    written = " ".join(str(byte) if byte != ord("\n") else "\n" for byte in text.encode())
    counted = Counter(symbol for line in written.split("\n") for symbol in line.split())
    symbols = [symbol for symbol, _ in counted.most_common()]
    tokenizer, notes = converted_vocabulary(symbols, tmp_path)
    assert [symbols[i] for i in tokenizer.encode(text)] == written.split()
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("\n", "")
    encoding = tokenizer.encode_with_offsets(text)
    assert {text[start:end] for start, end in zip(encoding.starts, encoding.ends, strict=True)} == set(text) - {"\n"}
    assert notes[0].startswith("cache.pkl: its numbers are bytes, as in enwik8")
    with pytest.raises(DataError, match="got 'z'"):
        tokenizer.encode("z")


def test_the_vocabulary_of_text8_is_characters(tmp_path: Path) -> None:
    """As `prep_text8.py` writes them: letters, and `_` for a space."""
    symbols = ["_", *"etaonisrhldcumfpgwybvkxjzq"]
    tokenizer, notes = converted_vocabulary(symbols, tmp_path)
    text = " the quick brown fox"
    assert "".join(symbols[i] for i in tokenizer.encode(text)) == text.replace(" ", "_")
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert notes[0].startswith("cache.pkl: its symbols are characters")


def test_words_that_are_numbers_among_others_are_words(tmp_path: Path) -> None:
    tokenizer, notes = converted_vocabulary(["<S>", "the", "12", "<UNK>", "_"], tmp_path)
    assert tokenizer.encode("<S> the 12 unseen <S>").tolist() == [0, 1, 2, 3, 0]
    assert notes == ["cache.pkl: 5 tokens for the 61 ids of the model; those from 5 on have no text."]


# ------------------------------------------------------------------------------------------------ refusals


def test_a_run_is_its_best_model(tmp_path: Path) -> None:
    save(LanguageModel(XLNET_CONFIG), tmp_path / "run" / "best")
    convert(tmp_path / "run", tmp_path / "hf", to="hf", compare=False)
    convert(tmp_path / "hf", tmp_path / "again", compare=False)
    equal(load(tmp_path / "again"), load(tmp_path / "run" / "best"))


def test_a_copy_of_a_segue_model_keeps_its_card(tmp_path: Path) -> None:
    save(LanguageModel(XLNET_CONFIG), tmp_path / "ours", facts=Facts(command="segue pretrain x"))
    convert(tmp_path / "ours", tmp_path / "copy", compare=False)
    assert (tmp_path / "copy" / "README.md").read_text() == (tmp_path / "ours" / "README.md").read_text()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    save(LanguageModel(XLNET_CONFIG), tmp_path / "ours")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"file/out must be writable; got Not a directory"):
        convert(tmp_path / "ours", tmp_path / "file" / "out", to="hf", compare=False)


def test_a_folder_is_replaced_only_if_asked_and_only_a_conversion(tmp_path: Path) -> None:
    save(LanguageModel(XLNET_CONFIG), tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    with pytest.raises(CheckpointError, match="--replace"):
        convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False, replace=True)
    with pytest.raises(CheckpointError, match="something else"):
        convert(tmp_path / "hf", tmp_path / "ours", compare=False, replace=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 10**9}, "num_layers must be at most 2048"),
        ({"n_layer": 2000}, "must hold the tensors of its config"),
        ({"n_layer": "three"}, "num_layers"),
        ({"clamp_len": "far"}, "settings and tensors of its kind"),
        ({"d_model": 0}, "width"),
        ({"n_head": 0, "d_head": None}, "settings and tensors of its kind"),
        ({"d_inner": 41}, r"must have the shape \[41, 24\]"),
        ({"vocab_size": 10**15}, "size must be at most"),
        ({"vocab_size": 10**7}, "must have the shape"),
        ({"architectures": 5}, "settings and tensors of its kind"),
        ({"model_type": "bert"}, 'model_type in config.json must be "xlnet"'),
    ],
)
def test_a_config_that_is_nonsense(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    save(LanguageModel(XLNET_CONFIG), tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    path = tmp_path / "hf" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(SegueError, match=message):
        convert(tmp_path / "hf", tmp_path / "again", compare=False)
    path.write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="must be JSON"):
        convert(tmp_path / "hf", tmp_path / "again", compare=False)


def hf(tmp_path: Path) -> Path:
    """A folder for transformers."""
    torch.manual_seed(0)
    save(LanguageModel(XLNET_CONFIG), tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    return tmp_path / "hf"


def changed(folder: Path, change: Callable[[str, Tensor], Tensor]) -> None:
    """The weights of a folder, each changed."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        state = {name: change(name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    save_file(state, folder / "model.safetensors")


def test_weights_of_several_dtypes_become_one(tmp_path: Path) -> None:
    folder = hf(tmp_path)
    changed(folder, lambda name, value: value if "norm" in name else value.bfloat16())
    report = convert(folder, tmp_path / "again", compare=False)
    assert "tensors of bfloat16 and float32: all are float32 now, with the same values." in report.notes
    again, ours = load(tmp_path / "again").state_dict(), load(tmp_path / "ours").state_dict()
    assert all(
        torch.equal(again[name], value if "norm" in name else value.bfloat16().float()) for name, value in ours.items()
    )


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    folder = hf(tmp_path)
    changed(folder, lambda name, value: value.to(torch.float8_e4m3fn))
    with pytest.raises(CheckpointError, match=r"got float8_e4m3fn\. Use weights that are not quantised"):
        convert(folder, tmp_path / "again", compare=False)


def test_weights_that_are_not_numbers_are_pointed_out(tmp_path: Path) -> None:
    folder = hf(tmp_path)
    changed(folder, lambda name, value: value * torch.nan if name.endswith("1.rel_attn.q") else value)
    report = convert(folder, tmp_path / "again")
    name = "trunk.reader.layers.1.attention.query.weight"
    assert report.notes[-1].startswith(f"CAREFUL: 1 tensor holds NaN or infinity, {name}")
    assert report.comparison is None
    assert "CAREFUL" in (tmp_path / "again" / REPORT).read_text()
    with pytest.warns(SegueWarning, match=f"1 tensor holds NaN or infinity, {name}"):
        load(tmp_path / "again")
    with pytest.warns(SegueWarning, match="holds NaN"):
        segue.load(tmp_path / "again")


def test_what_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for path, seen in (("text.txt", "a file that starts with b'hello'"), ("empty", "an empty folder")):
        with pytest.raises(CheckpointError, match=f"got none of these but {seen}"):
            detect(tmp_path / path)
    with pytest.raises(CheckpointError, match="does not exist"):
        detect(tmp_path / "nowhere")
    (tmp_path / "vocab.txt").write_text("the\na\n")
    assert detect(tmp_path / "vocab.txt").kind == "vocabulary"
    with pytest.raises(CheckpointError, match="must hold a model; got a vocabulary"):
        convert(tmp_path / "vocab.txt", tmp_path / "out")
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    assert detect(tmp_path / "other.safetensors").kind == "safetensors"
    with pytest.raises(CheckpointError, match="Transformer-XL, an XLNet, a BERT or a GPT-2"):
        convert(tmp_path / "other.safetensors", tmp_path / "out")
