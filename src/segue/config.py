"""Every setting, in pipeline order: load from TOML, override, validate in full, save. Knows nothing of torch.

In: a TOML file, a nested dict, `section.key=value` overrides. Out: a frozen `Config`, or one `ConfigError`
that lists every problem with its value and its remedy. What the settings do is the business of `model/`.

`None` means "not there" or "no limit"; no number has a second meaning. TOML has no null: leave the key out.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from segue.errors import ConfigError

PositiveInt: TypeAlias = Annotated[int, Field(ge=1)]
Probability: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
PositiveFloat: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of settings: unknown keys are errors, values are never silently converted or changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


# ---------------------------------------------------------------------------------------------- vocabulary


class VocabularyConfig(Section):
    """How ids become vectors and hidden states become probabilities."""

    size: PositiveInt
    """Number of tokens."""
    width: PositiveInt | None = None
    """Width of the (first) token table; `model.width` if left out. A projection bridges a difference."""
    scale: bool = False
    """Multiply embeddings by the square root of `model.width`, as Transformer-XL does and XLNet does not."""
    cutoffs: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = ()
    """Ids at which the bins of the adaptive softmax begin, ascending; none means a plain softmax."""
    shrink: PositiveInt = 1
    """Bin i has width `width // shrink**i` (div_val of the original); 1 keeps one table for all bins."""
    project_first_bin: bool = True
    """With `shrink` above 1: project the first bin even where its width is `model.width` already."""
    tie_weights: bool = True
    """Use the token tables for the softmax too."""
    tie_projections: Literal["none", "all_but_first", "all"] = "all_but_first"
    """Which bins use their input projection for the softmax too; the others learn one of their own."""
    cluster_order: Literal["forward", "reversed"] = "forward"
    """Column of cluster i in the head: `cutoffs[0] + i - 1` (TensorFlow, transformers), or the i-th from
    the end (the original PyTorch code)."""
    transform: bool = False
    """A dense layer, activation and LayerNorm between the trunk and the softmax (BERT)."""


# ----------------------------------------------------------------------------------------------- positions


class XLPositions(Section):
    """Transformer-XL: projected sinusoids of the distance, with the biases u and v (Dai et al. 2019)."""

    kind: Literal["xl"] = "xl"
    shared_biases: bool = True
    """One u and v for all layers (paper, enwik8 and text8 releases) or one for each (wt103, lm1b, XLNet)."""
    clamp_distance: PositiveInt | None = None
    """Longer distances, either way, count as this one; the releases use it at evaluation only."""


class ShawPositions(Section):
    """Shaw et al. 2018: a learned vector for each clipped distance, on the keys and on the values."""

    kind: Literal["shaw"] = "shaw"
    clip_distance: PositiveInt = 16
    """Longer distances, either way, share the vector of this one."""


class LearnedRelativePositions(Section):
    """The original PyTorch code's attention type 1, which it calls Shaw: for each layer, head and distance a
    learned key and a scalar, and the bias u. No value side."""

    kind: Literal["learned_relative"] = "learned_relative"
    max_distance: PositiveInt = 512
    """The longest distance with a key of its own; longer ones share it."""


class AbsolutePositions(Section):
    """A position vector added to the embedding (Vaswani et al. 2017; GPT and BERT learn it)."""

    kind: Literal["absolute"] = "absolute"
    encoding: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Computed, or learned."""
    max_length: PositiveInt = 512
    """Number of learned positions; sinusoids have no limit."""
    count_from: Literal["start", "end"] = "start"
    """`end` gives the last token of the segment position 0, as the original PyTorch code's type 2 does."""


class PerLayerPositions(Section):
    """A learned position vector added to the input of every layer (Al-Rfou et al. 2018)."""

    kind: Literal["per_layer"] = "per_layer"
    max_length: PositiveInt = 512
    """Number of learned positions."""


class RotaryPositions(Section):
    """Queries and keys rotated by their position (Su et al. 2021); first half of a head against the second."""

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10000.0
    """The slowest pair turns by 1 / base (about) for each position."""


class AlibiPositions(Section):
    """A penalty that grows with the distance, with a fixed slope for each head (Press et al. 2021)."""

    kind: Literal["alibi"] = "alibi"


Positions: TypeAlias = (
    XLPositions
    | ShawPositions
    | LearnedRelativePositions
    | AbsolutePositions
    | PerLayerPositions
    | RotaryPositions
    | AlibiPositions
)
POSITION_KINDS: dict[str, type[Section]] = {cls.model_fields["kind"].default: cls for cls in get_args(Positions)}


# -------------------------------------------------------------------------------------------------- memory


class MemoryConfig(Section):
    """What a segment leaves for the next one."""

    length: PositiveInt
    """Most positions that each layer keeps."""
    initial: Literal["empty", "zeros"] = "empty"
    """A new row remembers nothing, or attends to zeros, as the TensorFlow code and its releases do."""
    reuse_length: PositiveInt | None = None
    """Remember only this many first positions of a segment, because the next one begins there (XLNet)."""
    backprop_segments: PositiveInt | None = None
    """Let gradients flow through memory, in runs of this many segments and one more: call backward once a run.
    Left out, memory is a constant."""


# --------------------------------------------------------------------------------------------------- model


class AuxiliaryConfig(Section):
    """The auxiliary losses of Al-Rfou et al. 2018: every layer predicts, and further tokens too."""

    targets: PositiveInt = 2
    """How many of the next tokens each position predicts; those after the first weigh one half."""


class ModelConfig(Section):
    """The trunk and its four choices: positions, memory, objective, output."""

    objective: Literal["causal", "permutation", "masked"] = "causal"
    """causal: left to right. permutation: XLNet's two streams. masked: both ways, BERT."""
    vocabulary: VocabularyConfig
    positions: Annotated[Positions, Field(discriminator="kind")] = XLPositions()
    memory: MemoryConfig | None = None
    """Left out: every segment is read on its own."""
    attention_span: PositiveInt | None = None
    """Each query sees exactly this many latest keys, itself included (causal only). `same_length` of the original
    PyTorch code and of transformers is the memory length; of the TensorFlow code, memory length + 1."""
    segments: Literal["relative", "absolute"] | None = None
    """relative: XLNet's same-or-different score. absolute: BERT's vectors added to the embedding."""
    num_segments: PositiveInt = 2
    """Number of absolute segment vectors."""
    directions: Literal["forward", "both"] = "forward"
    """both: a second causal reader reads the segment from its end, and the states are joined."""

    num_layers: PositiveInt = 12
    width: PositiveInt = 512
    num_heads: PositiveInt = 8
    head_width: PositiveInt | None = None
    """`width / num_heads` if left out; may be anything."""
    inner_width: PositiveInt = 2048
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    """gelu is exact (erf); gelu_tanh is the approximation in the original XLNet and GPT code."""
    attention_bias: bool = False
    """Biases on the query, key, value and output projections (GPT, BERT)."""
    norm_first: bool = False
    """Normalise the input of each sub-layer instead of its sum with the residual."""
    final_norm: bool = False
    """One more LayerNorm after the last layer."""
    embedding_norm: bool = False
    """LayerNorm on the embeddings (BERT)."""
    norm_epsilon: PositiveFloat = 1e-5
    """1e-12 in the TensorFlow releases of both models and in BERT."""
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0
    """On the attention probabilities."""
    auxiliary: AuxiliaryConfig | None = None
    """Left out: only the last layer predicts, and only the next token."""
    init_std: PositiveFloat = 0.02
    """Of weights, embeddings and score biases."""
    projection_init_std: PositiveFloat = 0.01
    """Of the projections between token tables and model width."""

    @property
    def bidirectional(self) -> bool:
        """Whether a token may see later ones of its segment."""
        return self.objective != "causal"

    @property
    def resolved_head_width(self) -> int:
        return self.head_width if self.head_width is not None else self.width // self.num_heads

    @property
    def hidden_width(self) -> int:
        """Width of what a head reads."""
        return 2 * self.width if self.directions == "both" else self.width


class Config(Section):
    """All settings of a run."""

    model: ModelConfig


# ------------------------------------------------------------------------------------ rules across settings

Problem: TypeAlias = tuple[tuple[str, ...], str]


def _rules(model: ModelConfig) -> Iterator[Problem]:
    """Yields (the settings a rule reads, what is wrong) for every broken rule."""
    yield from _shape_rules(model)
    yield from _vocabulary_rules(model)
    yield from _choice_rules(model)


def _shape_rules(model: ModelConfig) -> Iterator[Problem]:
    width, heads = model.width, model.num_heads
    if model.head_width is None and width % heads:
        divisors = [n for n in range(1, width + 1) if width % n == 0]
        below, above = [n for n in divisors if n < heads], [n for n in divisors if n > heads]
        nearest = below[-1:] + above[:1]
        yield (
            ("num_heads", "width", "head_width"),
            f"model.num_heads must divide model.width; got {heads} and {width}. "
            f"Use {' or '.join(map(str, nearest))} heads, or set model.head_width.",
        )
    kind = model.positions.kind
    sinusoidal = kind == "xl" or (
        isinstance(model.positions, AbsolutePositions) and model.positions.encoding == "sinusoidal"
    )
    if sinusoidal and width % 2:
        yield (
            ("width", "positions"),
            f"model.width must be even for sinusoidal positions; got {width}. Use {width + 1}.",
        )
    if kind == "rotary" and model.resolved_head_width % 2:
        yield (
            ("head_width", "width", "num_heads", "positions"),
            f"model.head_width must be even for rotary positions; got {model.resolved_head_width}. "
            f"Set it to {model.resolved_head_width + 1}.",
        )


def _vocabulary_rules(model: ModelConfig) -> Iterator[Problem]:
    vocabulary = model.vocabulary
    cutoffs = vocabulary.cutoffs
    if list(cutoffs) != sorted(set(cutoffs)):
        yield (
            ("vocabulary.cutoffs",),
            f"model.vocabulary.cutoffs must ascend; got {list(cutoffs)}. Use {sorted(set(cutoffs))}.",
        )
    if cutoffs and max(cutoffs) >= vocabulary.size:
        yield (
            ("vocabulary.cutoffs", "vocabulary.size"),
            f"model.vocabulary.cutoffs must be below model.vocabulary.size; got {max(cutoffs)} and "
            f"{vocabulary.size}. Leave out the cutoffs that are too large.",
        )
    if vocabulary.shrink > 1 and not cutoffs:
        yield (
            ("vocabulary.shrink", "vocabulary.cutoffs"),
            f"model.vocabulary.shrink needs cutoffs; got shrink {vocabulary.shrink} and none. "
            "Set model.vocabulary.cutoffs, or leave shrink out.",
        )
    table_width = vocabulary.width or model.width
    if table_width // vocabulary.shrink ** len(cutoffs) < 1:
        yield (
            ("vocabulary.shrink", "vocabulary.cutoffs", "vocabulary.width", "width"),
            f"model.vocabulary.shrink leaves no width for bin {len(cutoffs)}; got width {table_width} and "
            f"shrink {vocabulary.shrink}. Use a smaller shrink or fewer cutoffs.",
        )


def _choice_rules(model: ModelConfig) -> Iterator[Problem]:
    positions = model.positions
    if model.attention_span is not None and model.bidirectional:
        yield (
            ("attention_span", "objective"),
            f'model.attention_span is for objective "causal"; got {model.attention_span} with '
            f'"{model.objective}". Leave it out.',
        )
    if isinstance(positions, LearnedRelativePositions) and model.bidirectional:
        yield (
            ("positions", "objective"),
            'model.positions.kind "learned_relative" has no vectors for tokens to the right; got objective '
            f'"{model.objective}". Use kind "xl" or "shaw".',
        )
    if isinstance(positions, AbsolutePositions) and positions.count_from == "end" and model.memory:
        yield (
            ("positions", "memory"),
            'model.positions.count_from "end" has no meaning beyond the segment; got a memory too. '
            'Use "start", or leave out model.memory.',
        )
    if model.directions == "both" and model.objective != "causal":
        yield (
            ("directions", "objective"),
            f'model.directions "both" is for objective "causal"; got "{model.objective}", which sees both '
            'directions already. Use "forward".',
        )
    if model.auxiliary and model.objective != "causal":
        yield (
            ("auxiliary", "objective"),
            f'model.auxiliary is for objective "causal"; got "{model.objective}". Leave it out.',
        )
    if model.auxiliary and model.directions == "both":
        yield (
            ("auxiliary", "directions"),
            'model.auxiliary is for one reader; got directions "both". Leave one of them out.',
        )


# ------------------------------------------------------------------------- load, override, validate, save


def load(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a TOML file, applies `section.key=value` overrides, validates all of it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} must be a readable UTF-8 TOML file; got {error}. Check the path and the encoding."
        ) from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} must be TOML; got {error}. Correct that place.") from None
    return parse(values, overrides)


def parse(values: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """Validates nested values; raises one ConfigError with every problem."""
    merged = _copy(values)
    problems = [text for override in overrides if (text := _apply(merged, override))]
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        problems += [_explain(detail) for detail in error.errors()]
        bad = {_path(detail["loc"]) for detail in error.errors()}
        problems += _rules_among_the_good(merged, error, bad)
    else:
        problems += [message for _, message in _rules(config.model)]
        if not problems:
            return config
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    raise ConfigError("\n".join([f"The config has {count}:", *(f"- {text}" for text in problems)]))


def model_config(**values: Any) -> ModelConfig:
    """A validated `ModelConfig` from plain keyword values, as in the `[model]` table of a file."""
    return parse({"model": values}).model


def changed(config: ModelConfig, **values: Any) -> ModelConfig:
    """The same model with some settings changed; sections take dicts that are merged, None removes a key."""
    return model_config(**_merge(config.model_dump(exclude_none=True), values))


def dump(config: Config) -> str:
    """The whole config, defaults included, as TOML."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            other_kind = "kind" in value and value["kind"] != merged[key].get("kind")
            merged[key] = dict(value) if other_kind else _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def _apply(values: dict[str, Any], override: str) -> str | None:
    """Sets one `section.key=value` in place; returns what is wrong with it, if anything."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        return f"an override must read section.key=value; got {override!r}. Write model.width=512, say."
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for part in parts[:-1]:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            return f"{key} must name a setting inside a section; got {part}, which is none. Check the name."
        values = inner
    values[parts[-1]] = value
    return None


def _rules_among_the_good(merged: dict[str, Any], error: ValidationError, bad: set[str]) -> list[str]:
    """The broken rules that read only settings which are fine by themselves, so that all is said at once."""
    for detail in error.errors():
        table: Any = merged
        keys = [part for part in _parts(detail["loc"]) if isinstance(part, str)]
        for key in keys[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(keys[-1], None)
    try:
        if isinstance(merged.get("model"), dict):
            merged["model"].setdefault("vocabulary", {}).setdefault("size", 2**31)
            if isinstance(merged["model"].get("memory"), dict):
                merged["model"]["memory"].setdefault("length", 1)
        config = Config.model_validate(merged)
    except (ValidationError, AttributeError):
        return []
    return [
        message
        for names, message in _rules(config.model)
        if not any(wrong.startswith(f"model.{name}") for name in names for wrong in bad)
    ]


# ---------------------------------------------------------------------------------------- error messages


def _parts(loc: tuple[str | int, ...]) -> list[str | int]:
    """A pydantic location without the union tag that it inserts after `positions`."""
    return [
        part
        for before, part in zip((None, *loc), loc, strict=False)
        if not (before == "positions" and part in POSITION_KINDS)
    ]


def _path(loc: tuple[str | int, ...]) -> str:
    return ".".join(map(str, _parts(loc)))


def _sections(section: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section]]]:
    """Every table of settings with its dotted name; `positions` once for each kind."""
    yield prefix, section
    for name, field in section.model_fields.items():
        options = get_args(field.annotation) or (field.annotation,)
        for option in options:
            if isinstance(option, type) and issubclass(option, Section):
                yield from _sections(option, f"{prefix}.{name}" if prefix else name)


def _explain(detail: ErrorDetails) -> str:
    path, value = _path(detail["loc"]), detail["input"]
    context = detail.get("ctx", {})
    table, _, key = path.rpartition(".")
    match detail["type"]:
        case "extra_forbidden":
            return _explain_unknown(path, table, key, detail["loc"])
        case "missing" if not table:
            return f"{path} must be given; got nothing. Add a [{key}] table."
        case "missing":
            return f"{path} must be given; got nothing. Add {key} = ... under [{table}]."
        case "literal_error" | "union_tag_invalid":
            expected = context.get("expected") or context["expected_tags"]
            got = context.get("tag", value)
            where = f"{path}.kind" if "tag" in context else path
            return f"{where} must be {expected}; got {got!r}. Use one of these."
        case "greater_than_equal":
            return f"{path} must be at least {context['ge']:g}; got {value!r}. {_remedy(table, key)}"
        case "greater_than":
            return f"{path} must be above {context['gt']:g}; got {value!r}. {_remedy(table, key)}"
        case "less_than":
            return f"{path} must be below {context['lt']:g}; got {value!r}. {_remedy(table, key)}"
        case "int_type" | "int_from_float":
            return f"{path} must be a whole number; got {value!r}. {_remedy(table, key)}"
        case "float_type" | "finite_number":
            return f"{path} must be a finite number; got {value!r}. {_remedy(table, key)}"
        case "bool_type":
            return f"{path} must be true or false; got {value!r}. {_remedy(table, key)}"
        case _:
            rule = detail["msg"].removeprefix("Input should be ")
            return f"{path} must be {rule}; got {value!r}. {_remedy(table, key)}"


def _explain_unknown(path: str, table: str, key: str, loc: tuple[str | int, ...]) -> str:
    tables = list(_sections(Config))
    owners = [cls for name, cls in tables if name == table and key in cls.model_fields]
    if owners:  # a setting of another kind of positions
        kind = owners[0].model_fields["kind"].default
        return f'{path} must go with kind "{kind}"; got kind "{loc[-2]}". Remove it, or change the kind.'
    tags = {part for part in loc if part in POSITION_KINDS}
    known = [
        f"{name}.{field}".lstrip(".")
        for name, cls in tables
        for field in cls.model_fields
        if not tags or name != table or cls.model_fields["kind"].default in tags
    ]
    siblings = [name for name in known if name.rpartition(".")[0] == table]
    for candidates, cutoff in ((known, 1.0), (siblings, 0.6), (known, 0.75)):
        names = {name.rpartition(".")[2]: name for name in reversed(candidates)}
        if nearest := difflib.get_close_matches(key, names, n=1, cutoff=cutoff):
            return f"{path} is not a setting. Did you mean {names[nearest[0]]}?"
    here = ", ".join(name.rpartition(".")[2] for name in siblings)
    return f"{path} is not a setting. The settings here are: {here}."


def _remedy(table: str, key: str) -> str:
    for name, cls in _sections(Config):
        if name == table and key in cls.model_fields and not cls.model_fields[key].is_required():
            default = cls.model_fields[key].default
            if default is None:
                return "Correct it, or leave it out."
            return f"Correct it, or leave it out for {default!r}."
    return "Correct it."
