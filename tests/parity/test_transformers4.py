"""Transformer-XL of transformers 4.37, the last version in which it runs: losses, probabilities, memories."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from segue.checkpoint.convert import convert
from segue.model import Batch, LanguageModel, Memory
from segue.model.heads import SequenceClassifier
from tests.originals import FIXTURES
from tests.parity.weights import (
    Settings,
    close,
    close_gradients,
    filled,
    inverse_frequencies,
    noisy,
    transfo_xl_config,
    transfo_xl_state,
)

transformers = pytest.importorskip("transformers")
if not transformers.__version__.startswith("4.37."):
    pytest.skip(f"compares with transformers 4.37; this is {transformers.__version__}", allow_module_level=True)

pytestmark = [
    pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"]),
    pytest.mark.filterwarnings("ignore:The output of TransfoXL will be updated:DeprecationWarning"),
]

ROWS = 3
CHOICES = {
    "one_bin": {"cutoffs": []},
    "wide_heads": {"cutoffs": [], "d_head": 10},
    "bins": {},
    "bins_own_softmax": {"tie_word_embeddings": False},
    "bins_projected": {"d_embed": 16},
    "bins_projected_apart": {"d_embed": 16, "proj_share_all_but_first": False},
    "shrinking_bins": {"div_val": 2},
    "shrinking_bins_apart": {"div_val": 2, "proj_share_all_but_first": False},
    "shared_biases": {"untie_r": False},
    "norm_first": {"pre_lnorm": True},
    "same_length": {"same_length": True},
    "clamped": {"clamp_len": 5},
    "wt103_like": {"div_val": 2, "same_length": True, "clamp_len": 5},
}


@pytest.fixture(autouse=True)
def _masked_scores_in_double(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers masks scores in float32 whatever the dtype, which fails in float64: `float` must not round."""
    if dtype == torch.float64:
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def tiny(**choices: object) -> Settings:
    """Every bin is met, and a memory is longer than some segments and shorter than others."""
    settings = {
        "vocab_size": 64,
        "cutoffs": [20, 40],
        "d_model": 24,
        "d_embed": 24,
        "n_head": 3,
        "d_head": 8,
        "d_inner": 40,
        "n_layer": 3,
        "div_val": 1,
        "mem_len": 7,
        "clamp_len": -1,
        "same_length": False,
    }
    return transformers.TransfoXLConfig(**(settings | choices))


def theirs(kind: type, settings: Settings, dtype: torch.dtype) -> torch.nn.Module:
    model = noisy(kind(settings), dtype)
    if dtype == torch.float64:
        model.transformer.pos_emb.inv_freq = inverse_frequencies(settings.d_model)
    return model


def segments() -> list[Tensor]:
    """Three segments of different lengths; one token more than they hold, so that every token has a next one."""
    ids = torch.randint(64, (ROWS, 20), generator=torch.Generator().manual_seed(1))
    return [ids[:, start : stop + 1] for start, stop in ((0, 6), (6, 15), (15, 19))]


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
@torch.no_grad()
def test_segments(choices: dict[str, object], dtype: torch.dtype) -> None:
    """Hidden states, log-probabilities, losses and memories over three segments, from the initial zeros on.

    transformers shifts the labels inside a segment, so the last token of each has no loss there.
    """
    settings = tiny(**choices)
    other = theirs(transformers.TransfoXLLMHeadModel, settings, dtype)
    other.crit.keep_order = True  # or losses come grouped by bin
    model = filled(LanguageModel(transfo_xl_config(settings)), transfo_xl_state(other.state_dict(), settings))
    mems, memory = None, None
    for ids in segments():
        ids_BQ, targets_BQ = ids[:, :-1], ids[:, 1:]
        want = other(ids_BQ, mems=mems, output_hidden_states=True)
        want_loss = other(ids_BQ, mems=mems, labels=ids_BQ)
        result = model(Batch(ids_BQ=ids_BQ, targets=targets_BQ), memory)
        mems, memory = want.mems, result.memory
        for got, layer_BQD in zip(result.output.layers, want.hidden_states, strict=True):
            close(got, layer_BQD, dtype)
        close(model.logits(result.output.hidden_BQD).log_softmax(-1), want.prediction_scores, dtype)
        close(result.nll, -want.prediction_scores.gather(2, targets_BQ[:, :, None]).squeeze(2), dtype)
        close(result.nll[:, :-1], want_loss.losses, dtype)
        close(result.nll[:, :-1].mean(), want_loss.loss, dtype)
        close_memory(memory, mems, dtype)


def close_memory(memory: Memory, mems: list[Tensor], dtype: torch.dtype) -> None:
    """Both hold the inputs of the layers, theirs time first; the initial zeros are positions to attend to."""
    assert memory.valid_BM.all()
    close(memory.hidden_LBMD, torch.stack(mems).transpose(1, 2), dtype)


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_gradients(choices: dict[str, object], dtype: torch.dtype) -> None:
    """Gradients of the loss of the second segment, whose memory is a constant in both."""
    settings = tiny(**choices)
    other = theirs(transformers.TransfoXLLMHeadModel, settings, dtype)
    model = filled(LanguageModel(transfo_xl_config(settings)), transfo_xl_state(other.state_dict(), settings))
    first, second = (ids[:, :-1] for ids in segments()[:2])
    other(second, mems=other(first).mems, labels=second).loss.backward()
    inside_BQ = torch.arange(second.shape[1]).expand_as(second) < second.shape[1] - 1
    batch = Batch(ids_BQ=second, targets=second.roll(-1, dims=1), target_mask=inside_BQ)
    model(batch, model(Batch(ids_BQ=first)).memory).loss.backward()
    close_gradients(model, other, lambda state: transfo_xl_state(state, settings), dtype)


@pytest.mark.parametrize("task", ["single", "multiple", "regression"])
@torch.no_grad()
def test_sequence_classification(task: str, dtype: torch.dtype) -> None:
    """The state of the last token before the padding, straight to the classes; transformers has no bias there."""
    num_labels = 1 if task == "regression" else 4
    settings = tiny(num_labels=num_labels, pad_token_id=63)
    other = theirs(transformers.TransfoXLForSequenceClassification, settings, dtype)
    config = transfo_xl_config(settings)
    model = SequenceClassifier(config, num_labels=num_labels, task=task, summary="last", projected=False)
    filled(model, transfo_xl_state(other.state_dict(), settings))
    ids_BQ = segments()[1].clamp(max=62)
    real_BQ = torch.arange(ids_BQ.shape[1]) < torch.tensor([10, 7, 4])[:, None]
    ids_BQ = ids_BQ.masked_fill(~real_BQ, 63)
    labels = {
        "single": torch.tensor([2, 0, 3]),
        "multiple": torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 1]], dtype=dtype),
        "regression": torch.tensor([0.3, -1.2, 0.8], dtype=dtype),
    }[task]
    want = other(ids_BQ, labels=labels)
    result = model(Batch(ids_BQ=ids_BQ, real_BQ=real_BQ), labels=labels)
    close(result.logits, want.logits, dtype)
    close(result.loss, want.loss, dtype)


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("kind", ["TransfoXLLMHeadModel", "TransfoXLForSequenceClassification"])
def test_conversion(kind: str, choices: dict[str, object], dtype: torch.dtype, tmp_path: Path) -> None:
    """A folder of transformers becomes a segue model and a folder of transformers again. Each conversion compares
    logits itself, which works in float32 alone; the second one with what transformers loads from the folder."""
    if dtype == torch.float64:
        pytest.skip("compares in float32")
    if kind.endswith("SequenceClassification") and "d_embed" in choices:
        pytest.skip("transformers' classifier takes d_embed for d_model, and does not run")
    settings = tiny(**choices, num_labels=4, pad_token_id=0)
    other = theirs(getattr(transformers, kind), settings, dtype)
    other.save_pretrained(tmp_path / "theirs", safe_serialization=False)
    report = convert(tmp_path / "theirs", tmp_path / "ours")
    again = convert(tmp_path / "ours", tmp_path / "back", to="hf")
    for comparison in (report.comparison, again.comparison):
        assert comparison.largest <= 1e-5 * max(1.0, comparison.highest)
    result, info = type(other).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    state = result.state_dict()
    assert all(torch.equal(state[name], value) for name, value in other.state_dict().items())


@pytest.mark.parametrize("name", ["C1_softmax_tied", "C2_adaptive_div2"])
def test_original_modules_compare_with_transformers(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Though the original begins with no memory, and transformers with zeros."""
    if dtype != torch.float32:
        pytest.skip("compares in float32")
    report = convert(FIXTURES / "transformer_xl_pytorch" / name / "model.pt", tmp_path / "ours")
    again = convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    for one in (report, again):
        assert one.comparison.largest <= 1e-5
    assert "model.memory.initial: 'empty' here, 'zeros' there." in again.notes
