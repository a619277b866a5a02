"""Loading of studies from a file or by name; all problems are reported at once."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from segue.config import Config, merge, parse, read_config_file, settings, toml
from segue.config.presets import preset_names, preset_text
from segue.config.schema import LARGEST_VOCABULARY
from segue.data.samples import labelled_samples, samples
from segue.errors import ConfigError, DataError
from segue.evaluation.recl import check_contexts
from segue.study.schema import BaseConfig, BudgetConfig, CorpusConfig, StudyConfig, TaskConfig, VariantConfig
from segue.tasks.table import TASKS
from segue.train.finetune import finetune_settings

VALIDATION = "validation"
"""Name of the metric on the validation store."""
TOO_FEW = "variants must be two or more, to be compared"
OWN_SETTINGS = {
    "data": ("store", "validation"),
    "train": ("steps", "seed", "warmup_steps", "validate_every", "validation_steps", "save_every"),
}
"""Settings of a run that the study determines."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A validated study."""

    name: str
    """Name of the study, used for its report files."""
    settings: StudyConfig

    @property
    def title(self) -> str:
        return self.settings.title or self.name


def ready_studies() -> dict[str, str]:
    """Return the names and titles of the studies that are part of segue."""
    folder = files("segue.study") / "ready"
    names = sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml"))
    return {name: str(toml(ready_text(name), source=name).get("title", name)) for name in names}


def ready_text(name: str) -> str:
    """Return a ready study as TOML."""
    return (files("segue.study") / "ready" / f"{name}.toml").read_text(encoding="utf-8")


def open_study(source: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file, or a ready study by its name, with `section.key=value` overrides."""
    given = str(source)
    if Path(given).suffix == ".toml" or Path(given).exists():
        name, text = Path(given).stem, read_config_file(given)
    elif given in ready_studies():
        name, text = given, ready_text(given)
    else:
        near = get_close_matches(given, ready_studies(), n=1)
        advice = f"Did you mean {near[0]}?" if near else "`segue study` lists the names."
        raise ConfigError(
            f"a study must be a TOML file or one of {', '.join(ready_studies())}; got {given!r}. {advice}"
        )
    values = toml(text, source=given)
    try:
        study = Study(name=name, settings=settings(StudyConfig, values, overrides))
    except ConfigError as error:
        problems = _lines(error)
        problems += [one for one in _among_the_good(values, overrides) if one not in problems]
    else:
        problems = list(_problems(study.settings))
        if not problems:
            return study
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    raise ConfigError("\n".join([f"The study has {count}:", *(f"- {problem}" for problem in problems)]))


def variant_values(study: StudyConfig, variant: VariantConfig) -> dict[str, Any]:
    """Return the settings of a variant merged with those of the base, as in a config file, without those that the study
    determines."""
    values = _base_values(study)
    for name in variant.without:
        place, key = _place(values, name)
        place.pop(key, None)
    return merge(values, variant.model_dump(include={"model", "data", "train"}))


def _base_values(study: StudyConfig) -> dict[str, Any]:
    """Return the settings of the base merged with those of its preset."""
    values: dict[str, Any] = {}
    if study.preset is not None:
        values = toml(preset_text(study.preset), source=study.preset)
        for table, keys in OWN_SETTINGS.items():
            values[table] = {key: value for key, value in values.get(table, {}).items() if key not in keys}
    return merge(values, study.base.model_dump())


def _place(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Return the table to which a dotted name leads, and its key there; an empty table if there is none."""
    *tables, key = name.split(".")
    place: Any = values
    for table in tables:
        place = place.get(table) if isinstance(place, dict) else None
    return (place if isinstance(place, dict) else {}), key


# ------------------------------------------------------------------------------------------------------ problems


def _lines(error: ConfigError) -> list[str]:
    """Return the problems that an error lists."""
    return [line.removeprefix("- ") for line in str(error).splitlines()[1:]] or [str(error)]


def _among_the_good(values: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Return further problems, so that all are reported at once: the rules applied to the settings that are valid by
    themselves."""
    kept = {key: value for key, value in values.items() if key in StudyConfig.model_fields}
    for key in list(kept):
        trial = {"corpus": {"samples": ["english"]}, "budget": {"tokens": 1}, "variants": [], key: kept[key]}
        given = [one for one in overrides if one.partition("=")[0].strip().partition(".")[0] == key]
        try:
            kept[key] = getattr(settings(StudyConfig, trial, given), key)
        except ConfigError:
            del kept[key]
    if "variants" not in kept:
        kept["variants"] = _good_variants(values.get("variants"))
    kept.setdefault("corpus", CorpusConfig(samples=("english",)))
    kept.setdefault("budget", BudgetConfig(tokens=1))
    found = _problems(StudyConfig.model_construct(**kept))
    return [one for one in found if not one.startswith(TOO_FEW)]  # invalid variants were left out


def _good_variants(given: object) -> tuple[VariantConfig, ...]:
    """Return the variants of a list that are valid by themselves."""
    found: list[VariantConfig] = []
    for one in given if isinstance(given, list) else ():
        trial = {"corpus": {"samples": ["english"]}, "budget": {"tokens": 1}, "variants": [one]}
        with suppress(ConfigError):
            found += settings(StudyConfig, trial, ()).variants
    return tuple(found)


def _problems(study: StudyConfig) -> Iterator[str]:
    yield from _corpus_problems(study.corpus)
    if study.preset is not None and study.preset not in preset_names():
        yield f"preset must be one of {', '.join(preset_names())}; got {study.preset!r}. Check the name."
        return
    names = [variant.name for variant in study.variants]
    if len(names) < 2:
        yield f"{TOO_FEW}; got {len(names)}. Add a [[variants]] table."
    for what, values in (
        ("variants", names),
        ("seeds", study.seeds),
        ("measures.tasks", [task.name for task in study.measures.tasks]),
    ):
        for value, count in Counter(values).items():
            if count > 1:
                yield f"{what} must differ from each other; got {value!r} {count} times. Change or remove one."
    yield from _own_problems("base", study.base)
    configs, wrong = [], dict[str, list[str]]()
    for variant in study.variants:
        yield from _own_problems(f"variant {variant.name!r}", variant)
        yield from _without_problems(study, variant)
        try:
            configs.append(_tentative(study, variant))
        except ConfigError as error:
            for line in _lines(error):
                wrong.setdefault(line, []).append(variant.name)
    for line, having in wrong.items():
        everywhere = len(having) == len(names) > 1
        yield f"{'every variant' if everywhere else 'variant ' + ', '.join(map(repr, having))}: {line}"
    for task in study.measures.tasks:
        yield from _task_problems(task, study.variants)
    yield from _measure_problems(study, configs)
    yield from _paper_problems(study, names)


def _tentative(study: StudyConfig, variant: VariantConfig) -> Config:
    """Return the config of a variant before the store is known."""
    values = variant_values(study, variant)
    data = values.get("data")
    if isinstance(data, dict):
        data["store"] = ""
    words = values.get("model", {}).setdefault("vocabulary", {}) if isinstance(values.get("model"), dict) else {}
    if isinstance(words, dict):
        words.setdefault("size", study.corpus.vocabulary_size or LARGEST_VOCABULARY)
    return parse(values)


def _corpus_problems(corpus: CorpusConfig) -> Iterator[str]:
    known = samples()
    for name in corpus.samples:
        if name not in known:
            yield f"corpus.samples must be of {', '.join(known)}; got {name!r}. `segue sample` describes them."
    for name in corpus.files:
        if not Path(name).exists() and not set(name) & set("*?[:"):  # others are patterns, or names of data sets
            yield f"corpus.files must be files; got {name!r}, which is not there. Check the path."
    text = bool(corpus.samples or corpus.files)
    if text == (corpus.store is not None):
        got = "both" if text else "neither"
        yield f"corpus must have either samples and files, or a store; got {got}. Give corpus.samples, for example."
    if (corpus.store is None) != (corpus.validation is None):
        yield (
            "corpus.store and corpus.validation must be given together, as `segue prepare --validation-share` writes "
            "them; got one alone. Give both."
        )


def _own_problems(where: str, base: BaseConfig) -> Iterator[str]:
    for table, keys in OWN_SETTINGS.items():
        for key in keys:
            if key in getattr(base, table):
                yield f"{where}: {table}.{key} follows from [corpus], [budget] and seeds. Leave it out."


def _without_problems(study: StudyConfig, variant: VariantConfig) -> Iterator[str]:
    values = _base_values(study)
    known = list(_dotted(values))
    for name in variant.without:
        place, key = _place(values, name)
        if key not in place:
            near = get_close_matches(name, known, n=1)
            advice = f"Did you mean {near[0]}?" if near else f"The base has {', '.join(known) or 'no settings'}."
            yield f"variant {variant.name!r}: without must name settings of the base; got {name!r}. {advice}"


def _dotted(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the names of all tables and settings, except the tables of the base itself."""
    for key, value in values.items():
        if before:
            yield f"{before}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{before}{key}.")


def _task_problems(task: TaskConfig, variants: Sequence[VariantConfig]) -> Iterator[str]:
    where = f"task {task.name!r}"
    sources = [task.sample is not None, task.planted is not None, task.train is not None]
    if sum(sources) != 1:
        yield f"{where} must have one of sample, planted and train; got {sum(sources)} of them. Give one."
    if task.sample is not None and task.sample not in labelled_samples():
        yield f"{where}: sample must be one of {', '.join(labelled_samples())}; got {task.sample!r}. Check the name."
    if task.planted is not None and task.planted.sample not in samples():
        yield f"{where}: planted.sample must be one of {', '.join(samples())}; got {task.planted.sample!r}."
    if task.planted is not None:
        lengths = {task.planted.train_lengths: "train_", task.planted.lengths: ""}
        for (shortest, longest), prefix in lengths.items():
            if shortest > longest:
                yield (
                    f"{where}: planted.{prefix}shortest must be at most planted.{prefix}longest; got {shortest} and "
                    f"{longest}. Exchange them."
                )
    if task.name == VALIDATION:
        yield f'{where} must have another name: "{VALIDATION}" is the loss on the validation store. Rename it.'
    if task.task not in TASKS:
        yield f"{where}: task must be one of {', '.join(TASKS)}; got {task.task!r}. Check the name."
        return
    said = set()
    for variant in variants:
        try:
            finetuning(task, variant, seed=0)
        except ConfigError as error:
            said |= set(_lines(error))
    yield from (f"{where}: {line}" for line in sorted(said))


def finetuning(task: TaskConfig, variant: VariantConfig, *, seed: int) -> Any:
    """Return the settings of a fine-tuning run."""
    values: Mapping[str, Any] = merge(task.settings, variant.finetune)
    train = values.get("train", {})
    own = {"train": {"seed": seed, **train}} if isinstance(train, dict) else {}
    return finetune_settings(TASKS[task.task], merge(own, values))


def _measure_problems(study: StudyConfig, configs: Sequence[Config]) -> Iterator[str]:
    measures = study.measures
    if measures.contexts:
        try:
            check_contexts(measures.contexts)
        except DataError as error:
            yield f"measures.contexts: {error}"
    causal = any(config.model.objective == "causal" for config in configs)
    if (measures.memory_lengths or measures.contexts) and configs and not causal:
        yield (
            "measures.memory_lengths and measures.contexts are for causal models; no variant is one. Leave them out."
        )
    if not measures.tasks:
        for variant in study.variants:
            if variant.finetune:
                yield (
                    f"variant {variant.name!r} has settings of fine-tuning; the study has no task. Add a "
                    "[[measures.tasks]] table."
                )


def _paper_problems(study: StudyConfig, names: Sequence[str]) -> Iterator[str]:
    measured = [VALIDATION, *(task.name for task in study.measures.tasks)]
    for column in study.paper:
        where = f"paper {column.source!r}"
        if column.ours not in measured:
            yield f"{where}: ours must be one of {', '.join(measured)}; got {column.ours!r}. Check the name."
        for name in column.values:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                advice = f"Did you mean {near[0]!r}?" if near else "Check the name."
                yield f"{where}: values must be of variants; got {name!r}. {advice}"
        if names and names[0] not in column.values:
            yield f"{where}: values must have the first variant, {names[0]!r}, with which others are compared. Add it."
