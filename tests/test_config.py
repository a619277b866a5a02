"""Settings: every problem at once, each with the thing, the rule, the value and the remedy."""

import subprocess
import sys
import tomllib

import pytest

from segue.config import Config, ModelConfig, changed, dump, load, model_config, parse
from segue.config.presets import preset_names, preset_text
from segue.errors import ConfigError
from segue.model.named import named, named_models
from tests.tiny import MODELS

GOOD = {"model": {"vocabulary": {"size": 100}}}


def problems(values: dict, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(values, overrides)
    first, *lines = str(caught.value).splitlines()
    assert first == f"The config has {len(lines)} problem{'s' * (len(lines) > 1)}:"
    return [line.removeprefix("- ") for line in lines]


def test_all_problems_are_reported_at_once() -> None:
    values = {
        "model": {
            "widht": 64,
            "num_heads": 5,
            "width": 128,
            "dropout": 1.5,
            "vocabulary": {"cutoffs": [20, 10]},
            "positions": {"kind": "xl", "clip_distance": 3},
            "memory": {"length": 0},
        }
    }
    assert problems(values) == [
        "model.vocabulary.size must be given; got nothing. Add size = ... under [model.vocabulary].",
        'model.positions.clip_distance must go with kind "shaw"; got kind "xl". Remove it, or change the kind.',
        "model.memory.length must be at least 1; got 0. Correct it.",
        "model.dropout must be below 1; got 1.5. Correct it, or leave it out for 0.1.",
        "model.widht is not a setting. Did you mean model.width?",
        "model.num_heads must divide model.width; got 5 and 128. Use 4 or 8 heads, or set model.head_width.",
        "model.vocabulary.cutoffs must ascend; got [20, 10]. Use [10, 20].",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.width=0", "model.width must be at least 1; got 0."),
        ("model.width=12.5", "model.width must be a whole number; got 12.5."),
        ("model.width=true", "model.width must be a whole number; got True."),
        ('model.width="64"', "model.width must be a whole number; got '64'."),
        ("model.norm_epsilon=nan", "model.norm_epsilon must be a finite number; got nan."),
        ("model.norm_epsilon=0", "model.norm_epsilon must be above 0; got 0"),
        ("model.norm_first=1", "model.norm_first must be true or false; got 1."),
        ("model.objective=gpt", "model.objective must be 'causal', 'permutation' or 'masked'; got 'gpt'."),
        ("model.positions.kind=sinus", "model.positions.kind must be 'xl', 'shaw'"),
        ("model.clamp_distance=4", "Did you mean model.positions.clamp_distance?"),
        ("model.memory.lenght=4", "Did you mean model.memory.length?"),
        ("modle.width=4", "modle is not a setting. Did you mean model?"),
        ("model.zzz=4", "model.zzz is not a setting. The settings here are: objective"),
        ("nonsense", "an override must read section.key=value; got 'nonsense'."),
        ("model.width.x=3", "must name a setting inside a section"),
        ("model.vocabulary.cutoffs=[5, 100]", "must be below model.vocabulary.size; got 100 and 100."),
        ("model.vocabulary.shrink=2", "shrink needs cutoffs"),
        ("model.num_heads=7", "model.num_heads must divide model.width; got 7 and 512."),
        ("model.width=9", "model.width must be even for sinusoidal positions; got 9. Use 10."),
    ],
)
def test_each_problem_has_a_message(override: str, message: str) -> None:
    values = {"model": {"vocabulary": {"size": 100}, "width": 512}}
    assert any(message in text for text in problems(values, override)), problems(values, override)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "masked", "attention_span": 4}, 'attention_span is for objective "causal"'),
        ({"objective": "masked", "positions": {"kind": "learned_relative"}}, "no vectors for tokens to the right"),
        ({"positions": {"kind": "absolute", "count_from": "end"}, "memory": {"length": 4}}, "no meaning beyond"),
        ({"objective": "permutation", "positions": {"kind": "none"}}, "which token a query is to predict"),
        ({"positions": {"kind": "xl", "biases": "buckets"}}, "Set model.positions.shared_biases to false."),
        ({"objective": "masked", "directions": "both"}, "sees both directions already"),
        ({"objective": "masked", "auxiliary": {}}, 'auxiliary is for objective "causal"'),
        ({"directions": "both", "auxiliary": {}}, "auxiliary is for one reader"),
        ({"positions": {"kind": "rotary"}, "head_width": 3}, "head_width must be even for rotary"),
        (
            {"width": 8, "num_heads": 2, "vocabulary": {"size": 100, "cutoffs": [9, 20], "shrink": 4}},
            "leaves no width for bin 2",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings: dict, message: str) -> None:
    found = problems({"model": GOOD["model"] | settings})
    assert len(found) == 1
    assert message in found[0]


PERMUTATION = {"objective": "permutation"}
HALF_OF_128 = {"memory": {"length": 384, "reuse_length": 64}}


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        ({"masking": {"masked": 0.9, "random": 0.2}}, {}, "at most 1 together; got 0.9 and 0.2."),
        ({"lanes": 5, "backward_lanes": True}, {}, "data.lanes must be even with data.backward_lanes; got 5. Use 6."),
        (
            {"backward_lanes": True},
            {"positions": {"kind": "alibi"}},
            'needs signed distances, model.positions.kind "xl"',
        ),
        ({"segment_length": 513}, {"positions": {"kind": "per_layer"}}, "at most model.positions.max_length; got 513"),
        (
            {},
            {"objective": "masked", "memory": {"length": 9, "reuse_length": 9}},
            "the next one's targets; got 9 and 128",
        ),
        ({"targets": "second_half"}, {"objective": "masked"}, 'got "masked" and "forward". Use "all".'),
        ({"segment_length": 129}, PERMUTATION, "data.segment_length must be even"),
        ({"segment_length": 8}, PERMUTATION, "must be at least 10 for A SEP B SEP CLS; got 8."),
        ({"permutation": {"one_in": 200}}, PERMUTATION, "must be at least data.permutation.one_in; got 128 and 200."),
        ({}, PERMUTATION | {"memory": {"length": 9}}, "must be half of data.segment_length for permutations"),
        (
            {"permutation": {"pairs": False}},
            PERMUTATION | {"memory": {"length": 9, "reuse_length": 32}},
            "got 32 and 128. Use 64.",
        ),
        (
            {"permutation": {"permutation_size": 48}},
            PERMUTATION | HALF_OF_128,
            "permutation_size must divide half of data.segment_length; got 48 and 64. Use 64.",
        ),
        ({"reset_at_documents": True}, PERMUTATION | HALF_OF_128, "draws text from other documents"),
        ({}, PERMUTATION | {"segments": "absolute"}, "model.num_segments must be at least 3 for pairs"),
    ],
)
def test_data_that_does_not_go_with_itself_or_with_the_model(data: dict, model: dict, message: str) -> None:
    found = problems({"data": {"store": "corpus"} | data, "model": GOOD["model"] | model})
    assert len(found) == 1, found
    assert message in found[0]


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({"backward_lanes": True}, PERMUTATION | HALF_OF_128),
        ({"permutation": {"pairs": False, "permutation_size": 128}}, PERMUTATION | {"memory": {"length": 9}}),
        ({"permutation": {"pairs": False}, "reset_at_documents": True}, PERMUTATION | HALF_OF_128),
        ({}, {"objective": "masked", "memory": {"length": 9, "reuse_length": 128}}),
        ({"segment_length": 129, "permutation": {"one_in": 200}}, {"memory": {"length": 9, "reuse_length": 100}}),
    ],
)
def test_data_that_does(data: dict, model: dict) -> None:
    assert parse({"data": {"store": "corpus"} | data, "model": GOOD["model"] | model}).data.store == "corpus"


def test_problems_of_data_and_model_are_reported_together() -> None:
    data = {"lane": 3, "lanes": 3, "backward_lanes": True, "masking": {"masked": 1.5}, "permutation": {"spans": "word"}}
    assert problems({"data": data, "model": {"num_heads": 5, "vocabulary": {"size": 9}}}) == [
        "data.store must be given; got nothing. Add store = ... under [data].",
        "data.permutation.spans must be 'pieces', 'words' or 'characters'; got 'word'. Use one of these.",
        "data.masking.masked must be at most 1; got 1.5. Correct it, or leave it out for 0.8.",
        "data.lane is not a setting. Did you mean data.lanes?",
        "model.num_heads must divide model.width; got 5 and 512. Use 4 or 8 heads, or set model.head_width.",
        "data.lanes must be even with data.backward_lanes; got 3. Use 4.",
    ]
    assert problems({"data": {"store": "x", "lanes": 3, "backward_lanes": True}, "model": {"width": 9.5}})[1:] == [
        "model.width must be a whole number; got 9.5. Correct it, or leave it out for 512.",
        "data.lanes must be even with data.backward_lanes; got 3. Use 4.",
    ]


@pytest.mark.parametrize("values", [{}, {"model": 5}, {"model": []}, {"model": {"vocabulary": 3}}])
def test_nonsense_is_an_error_and_not_a_crash(values: dict) -> None:
    assert problems(values)


def test_overrides_are_toml_values_or_plain_words() -> None:
    config = parse(GOOD, ["model.positions.kind=shaw", "model.dropout=0.25", "model.vocabulary.cutoffs=[10, 20]"])
    assert config.model.positions.kind == "shaw"
    assert config.model.dropout == 0.25
    assert config.model.vocabulary.cutoffs == (10, 20)
    assert GOOD == {"model": {"vocabulary": {"size": 100}}}  # the caller's values are left alone


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_a_config_survives_its_file(config: ModelConfig, tmp_path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(dump(Config(model=config)), encoding="utf-8")
    assert load(path).model == config


def test_unreadable_files(tmp_path) -> None:
    with pytest.raises(ConfigError, match="readable UTF-8"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "latin.toml")
    (tmp_path / "broken.toml").write_text("[model\nwidth = ", encoding="utf-8")
    with pytest.raises(ConfigError, match="must be TOML"):
        load(tmp_path / "broken.toml")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path)


def test_changed_merges_sections_and_replaces_kinds() -> None:
    config = model_config(vocabulary={"size": 9}, positions={"kind": "xl", "clamp_distance": 4}, memory={"length": 3})
    assert changed(config, positions={"shared_biases": False}).positions.clamp_distance == 4
    assert changed(config, positions={"kind": "shaw"}).positions.clip_distance == 16
    assert changed(config, memory=None).memory is None
    assert config.memory.length == 3
    with pytest.raises(ConfigError, match=r"model\.widht"):
        changed(config, widht=3)


def test_every_setting_is_documented() -> None:
    """A field's docstring feeds --help and the docs; plain sizes need none."""
    plain = {"kind", "num_layers", "width", "num_heads", "inner_width", "dropout", "vocabulary", "positions", "model"}
    sections, undocumented = [Config], []
    while sections:
        section = sections.pop()
        for name, field in section.model_fields.items():
            if field.description is None and name not in plain:
                undocumented.append(f"{section.__name__}.{name}")
            arguments = getattr(field.annotation, "__args__", ()) or (field.annotation,)
            sections += [a for a in arguments if isinstance(a, type) and hasattr(a, "model_fields")]
    assert undocumented == []


def test_config_and_package_load_without_torch() -> None:
    code = "import sys, segue, segue.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_named_models_have_the_published_sizes() -> None:
    """In millions, as counted on the original implementations, and as the papers state for the vanilla models."""
    published = {
        "transformer-xl-wt103-base": 151.1,
        "transformer-xl-wt103": 285.2,
        "transformer-xl-enwik8-base": 41.1,
        "transformer-xl-enwik8": 277.2,
        "transformer-xl-lm1b": 838.1,
        "xlnet-base": 116.8,
        "xlnet-large": 360.3,
        "xlnet-chinese-mid": 208.9,
        "vanilla-12": 44.2,
        "vanilla-64": 235.3,
    }
    for name, millions in published.items():
        assert round(named_models()[name].parameters() / 1e6, 1) == millions, name


# ------------------------------------------------------------------------------------------------ presets and names

PUBLISHED = [name for name in preset_names() if not name.startswith("small-")]
"""Presets of whole runs that train a published model."""


@pytest.mark.parametrize("preset", PUBLISHED)
def test_a_preset_trains_the_model_of_that_name(preset: str) -> None:
    """Setting by setting; a vocabulary that the preset leaves to the store is that of the published model."""
    published = named(preset)
    values = tomllib.loads(preset_text(preset))["model"]
    values.setdefault("vocabulary", {}).setdefault("size", published.vocabulary.size)
    assert model_config(**values) == published
