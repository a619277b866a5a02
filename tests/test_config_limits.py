"""No config, from whatever source, takes time or memory without bound: sizes have an end, nonsense is one message."""

import json
import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from segue.api.configs import run_config
from segue.checkpoint.convert import convert
from segue.checkpoint.foreign import read_foreign
from segue.checkpoint.heads import HeadConfig, build, save_head
from segue.config import (
    Config,
    DataConfig,
    FinetuneConfig,
    ReadConfig,
    Section,
    TrainConfig,
    changed,
    load,
    model_config,
    parameter_count,
    parse,
)
from segue.config import settings as parse_settings
from segue.errors import ConfigError, SegueError
from segue.model import LanguageModel
from segue.model.build import shapes_only
from segue.model.named import named_models
from segue.model.room import machine_memory
from segue.tasks.table import TASKS
from segue.train.plan import check_memory
from tests.examples import examples
from tests.tiny import MODELS

ROOTS = [Config, ReadConfig, FinetuneConfig, HeadConfig, *(kind.settings for kind in TASKS.values())]
NUMBERS = [0, 1, -1, 2, 7, 2**20, 2**31 - 1, 2**31, 2**63 - 1, 2**64, 10**300, 10**4000, 0.0, 1e-320, 1e308, -1e9]
NUMBERS += [math.inf, math.nan, 1.5]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A hang is a failure; nothing here takes a tenth of the time that is given."""

    def stop(*_: object) -> None:
        raise AssertionError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sections(root: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    yield root.__name__, root
    for field in root.model_fields.values():
        for inner in get_args(field.annotation) or (field.annotation,):
            if isinstance(inner, type) and issubclass(inner, Section):
                yield from sections(inner)


def fields() -> Iterator[tuple[str, FieldInfo]]:
    for root in ROOTS:
        for name, section in sections(root):
            yield from ((f"{name}.{key}", field) for key, field in section.model_fields.items())


def bounds(annotation: Any, metadata: list[Any]) -> Iterator[bool]:
    """For each number in an annotation, whether it has a largest value."""
    if annotation in (int, float):
        yield any(getattr(one, "le", None) is not None or getattr(one, "lt", None) is not None for one in metadata)
        return
    own = list(getattr(annotation, "__metadata__", ()))
    own = [inner for one in own for inner in getattr(one, "metadata", [one])] or metadata
    for inner in get_args(annotation):
        yield from bounds(inner, own)


def test_every_number_has_a_largest_value() -> None:
    found = {name: all(bounds(field.annotation, field.metadata)) for name, field in fields()}
    assert len(found) > 80
    assert [name for name, bounded in found.items() if not bounded] == []


def test_the_limits_leave_room_above_every_named_model() -> None:
    for model in named_models().values():
        config = model.config
        parse({"model": config.model_dump(exclude_none=True) | {"num_layers": 10 * config.num_layers}})


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_parameters_are_counted_as_the_model_has_them(config: Any) -> None:
    with shapes_only():
        model = LanguageModel(config)
    assert parameter_count(config) == sum(parameter.numel() for parameter in model.parameters())


def test_divisors_are_found_at_once_however_large_the_width() -> None:
    with within(10), pytest.raises(ConfigError, match=r"got 3 and 1048576\. Use 2 or 4 heads"):
        parse({"model": {"vocabulary": {"size": 9}, "width": 2**20, "num_heads": 3}})
    with within(10), pytest.raises(ConfigError, match=r"model\.width must be at most 1048576; got 2147483647"):
        parse({"model": {"vocabulary": {"size": 9}, "width": 2**31 - 1}})


def test_a_model_larger_than_the_machine_is_refused_before_it_is_built() -> None:
    config = model_config(vocabulary={"size": 2**24}, width=2**20, num_heads=2**10, num_layers=2**11)
    with (
        within(10),
        pytest.raises(ConfigError, match=r"must fit into the [\d,.]+ GiB of available memory; got [\d,]+ million"),
    ):
        LanguageModel(config)
    layers = machine_memory() // (4 * 2**24 * 64) + 1  # each with a key of 64 numbers for every distance
    positions = {"kind": "learned_relative", "max_distance": 2**24}
    with within(10), pytest.raises(ConfigError, match="must fit into"):
        LanguageModel(
            model_config(vocabulary={"size": 9}, positions=positions, width=64, num_layers=layers, inner_width=1)
        )
    with shapes_only():
        LanguageModel(model_config(vocabulary={"size": 2**24}, width=2**20, num_heads=2**10, num_layers=1))


HOSTILE = {
    "an integer of 5,000 digits": f"[model]\nwidth = {'9' * 5000}\n",
    "a hexadecimal integer of 8,000 digits": f"[model]\nwidth = 0x{'f' * 8000}\n",
    "lists in lists": f"[model]\nwidth = {'[' * 20000}{']' * 20000}\n",
    "tables in tables": f"[model]\nx = {'{a=' * 5000}1{'}' * 5000}\n",
    "a key of 4,000 dots": f"{'a.' * 4000}a = 1\n",
    "a key of 100,000 dots": f"{'a.' * 100000}a = 1\n",
    "20,000 unknown keys": "[model]\n" + "".join(f"k{i} = 1\n" for i in range(20000)),
    "a long key": f"[model]\n{'k' * 60000} = 1\n",
    "2 MB": "# comment\n" * 200000,
    "cutoffs without end": f"[model.vocabulary]\nsize = 9\ncutoffs = [{'1,' * 30000}]\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_config_files_are_one_message(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    for read in (load, lambda path: run_config(str(path), [])):
        with within(30), pytest.raises(ConfigError) as caught:
            read(path)
        assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize(
    "text", ["data = 5", "model = 5", "data = []", "[model]\nvocabulary = 3", "[data]\nstore = 5", "[data]\nstore = []"]
)
def test_a_run_config_with_something_else_in_the_place_of_a_table(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SegueError):
        run_config(str(path), [])


@pytest.mark.parametrize(
    "override",
    [
        f"model.width={'9' * 5000}",
        f"model.width=0x{'f' * 8000}",
        f"model.width={'[' * 20000}",
        "a." * 30000 + "a=1",
        "model." * 2000 + "=1",
        f"model.width={'x' * 200000}",
        "=",
        "model.width",
        "\0=\0",
    ],
    ids=range(9),
)
def test_hostile_overrides_are_one_message(override: str) -> None:
    with within(10), pytest.raises(ConfigError) as caught:
        parse({"model": {"vocabulary": {"size": 9}}}, [override])
    assert len(str(caught.value)) < 2000
    with within(10), pytest.raises(ConfigError):
        parse_settings(FinetuneConfig, {}, [override])


def test_a_config_that_is_a_device_or_has_no_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", Path("/dev/zero"), tmp_path):
        with within(10), pytest.raises(ConfigError):
            load(path)
        with within(10), pytest.raises(ConfigError):
            run_config(str(path), [])


# ------------------------------------------------------------------------------------------------------- anything


def names(root: type[Section]) -> list[str]:
    return sorted({key for _, section in sections(root) for key in section.model_fields})


scalars = st.sampled_from(NUMBERS) | st.integers() | st.floats() | st.text(max_size=8) | st.booleans() | st.none()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(names(Config)) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=20,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=st.dictionaries(st.sampled_from(names(Config)), values, max_size=8),
    data=st.dictionaries(st.sampled_from(names(Config)), values, max_size=8),
)
def test_any_values_are_a_config_or_one_message(model: dict[str, Any], data: dict[str, Any]) -> None:
    with within(20):
        for config in ({"model": model}, {"model": model | {"vocabulary": {"size": 9}}, "data": {"store": "x"} | data}):
            with suppress(ConfigError):
                parameter_count(parse(config).model)


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A classifier for transformers, and its config.json."""
    folder = tmp_path_factory.mktemp("foreign")
    config, head = changed(MODELS["xlnet-base"], head_width=6), HeadConfig(kind="sequence_classifier")
    save_head(build(config, head), head, folder / "ours")
    convert(folder / "ours", folder / "theirs", to="hf", compare=False)
    return folder / "theirs", json.loads((folder / "theirs" / "config.json").read_text())


FOREIGN = ["vocab_size", "d_model", "n_layer", "n_head", "d_head", "d_inner", "mem_len", "reuse_len", "clamp_len"]
FOREIGN += ["dropout", "num_labels", "id2label", "layer_norm_eps", "initializer_range", "start_n_top", "summary_type"]
FOREIGN += ["architectures", "ff_activation", "attn_type", "tie_word_embeddings", "model_type", "problem_type"]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=st.dictionaries(st.sampled_from(FOREIGN), values, min_size=1, max_size=3))
def test_any_foreign_config_is_a_model_or_one_message(foreign: Any, changes: dict[str, Any]) -> None:
    folder, base = foreign
    (folder / "config.json").write_text(json.dumps(base | changes))
    with within(30), suppress(SegueError):
        read_foreign(folder)


@pytest.mark.parametrize("name", ["num_labels", "n_layer", "d_model", "vocab_size", "n_head", "mem_len"])
@pytest.mark.parametrize("value", ["2147483647", "1000000000000", "9" * 4000, "9" * 5000])
def test_a_foreign_config_with_a_number_without_end(foreign: Any, name: str, value: str) -> None:
    folder, base = foreign
    base = {key: old for key, old in base.items() if key not in (name, "id2label")}
    (folder / "config.json").write_text(json.dumps(base)[:-1] + f', "{name}": {value}}}')
    with within(20), pytest.raises(SegueError) as caught:
        read_foreign(folder)
    assert len(str(caught.value)) < 2000


def test_a_run_that_cannot_fit_is_refused_before_it_begins() -> None:
    config = model_config(vocabulary={"size": 99}, width=64, num_heads=8, num_layers=2, memory={"length": 8})
    train, cpu = TrainConfig(), torch.device("cpu")
    check_memory(config, DataConfig(store="x"), train, cpu)
    for data in (DataConfig(store="x", lanes=2**31 - 1), DataConfig(store="x", segment_length=2**24, lanes=2**12)):
        with pytest.raises(ConfigError, match=r"the run must fit into the .* GiB .* fewer data\.lanes"):
            check_memory(config, data, train, cpu)
    endless = changed(config, memory={"length": 2**24})
    with pytest.raises(ConfigError, match="the run must fit into"):
        check_memory(endless, DataConfig(store="x", lanes=64), train, cpu)
    with pytest.raises(ConfigError, match=r"the memory must fit into .* Use a shorter model\.memory\.length"):
        LanguageModel(endless).new_memory(64)
