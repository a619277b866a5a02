"""All settings of a study file. Rules that involve several settings are in `load`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from segue.config import Section
from segue.config.schema import Length, PositiveInt, Probability, Seed

Settings = dict[str, Any]
"""Tables and values, as in a config file."""
Names = Annotated[tuple[str, ...], Field(strict=False, max_length=64)]
Lengths = Annotated[tuple[Length, ...], Field(strict=False, max_length=64)]


class CorpusConfig(Section):
    """The text on which all variants are pretrained."""

    samples: Names = ()
    """Corpora of `segue sample`, by name; several are read as one."""
    files: Names = ()
    """Files, folders or globs of text, read with the samples."""
    store: str | None = None
    """A prepared store, in place of samples and files."""
    validation: str | None = None
    """Validation store, beside `store`."""
    kind: Literal["unigram", "bpe", "words", "characters", "bytes"] = "unigram"
    """Kind of tokeniser to train."""
    vocabulary_size: PositiveInt | None = None
    """Size of its vocabulary. Default: that of `segue prepare`."""
    documents: Literal["block", "line", "file", "record"] | None = None
    """Unit of a document. Default: that of `segue prepare`."""
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the documents held out for validation."""


class BudgetConfig(Section):
    """The budget that all variants share."""

    rule: Literal["tokens", "parameters", "multiply_adds"] = "tokens"
    """tokens: each variant reads the same number. multiply_adds: each variant uses as many multiply-adds as the first
    one, with more or fewer tokens. parameters: each variant reads the same number of tokens, and the inner width of its
    layers is chosen so that it has as many parameters as the first one."""
    tokens: Annotated[int, Field(ge=1, le=10**15)]
    """Number of tokens that the first variant reads."""
    points: Annotated[int, Field(ge=1, le=1000)] = 8
    """Number of validations, at equal shares of the budget."""
    warmup_share: Probability = 0.05
    """Share of the updates with linear warm-up of the learning rate."""


class BaseConfig(Section):
    """Settings that all variants share."""

    model: Settings = Field(default_factory=dict)
    data: Settings = Field(default_factory=dict)
    train: Settings = Field(default_factory=dict)


class VariantConfig(BaseConfig):
    """Settings that differ from the base; those of fine-tuning may differ too."""

    name: str
    about: str = ""
    """Description of the variant."""
    without: Names = ()
    """Settings of the base to remove, by dotted names: "model.memory"."""
    finetune: Settings = Field(default_factory=dict)
    """Fine-tuning settings, merged over those of the task: [read], [train] and [task]."""


class PlantedConfig(Section):
    """Long documents of real text in which one sentence, late in the document, states the class."""

    sample: str = "english"
    """Corpus of the documents."""
    shortest: PositiveInt = 300
    """Minimum number of words in a document."""
    longest: PositiveInt = 4000
    """Maximum number of words in a document; lengths are uniform on a logarithmic scale."""
    train_shortest: PositiveInt | None = None
    """Minimum number of words in a training or validation document. Default: `shortest`."""
    train_longest: PositiveInt | None = None
    """Maximum number of words in a training or validation document. Default: `longest`."""
    earliest: Annotated[float, Field(ge=0, le=0.99)] = 0.7
    """Earliest position of the sentence, as a share of the document."""
    classes: Annotated[int, Field(ge=2, le=8)] = 2
    """Number of classes."""

    @property
    def lengths(self) -> tuple[int, int]:
        """Minimum and maximum number of words in a test document."""
        return self.shortest, self.longest

    @property
    def train_lengths(self) -> tuple[int, int]:
        """Minimum and maximum number of words in a training or validation document."""
        return self.train_shortest or self.shortest, self.train_longest or self.longest


class TaskConfig(Section):
    """A task for which every variant is fine-tuned."""

    name: str
    task: str = "classify"
    """Name of the task in `segue finetune`."""
    sample: str | None = None
    """Labelled texts of `segue sample`, by name."""
    planted: PlantedConfig | None = None
    """Documents with a planted sentence, generated from a sample."""
    train: str | None = None
    """Table of training examples, in place of a sample."""
    valid: str | None = None
    """Table of validation examples. Default: a part of the training examples."""
    test: str | None = None
    """Table of test examples, by which variants are compared. Default: validation examples."""
    train_rows: PositiveInt = 2000
    """Number of training examples taken from a sample."""
    valid_rows: PositiveInt = 500
    """Number of validation examples taken from a sample."""
    test_rows: PositiveInt = 1000
    """Number of test examples taken from a sample."""
    metric: str | None = None
    """Metric that is reported. Default: the one that selects the best weights."""
    new_weights: bool = False
    """Use the shape of the pretrained model, not its weights."""
    settings: Settings = Field(default_factory=dict)
    """Settings of fine-tuning: [read], [train] and [task]."""


class MeasuresConfig(Section):
    """Evaluation of each run."""

    unit: Literal["perplexity", "bits_per_character", "loss"] = "perplexity"
    """Unit of the loss on the validation store; per token, except bits per character."""
    validation_tokens: PositiveInt | None = None
    """Maximum number of validation tokens to read. Default: all."""
    memory_lengths: Lengths = ()
    """Memory lengths with which causal models are evaluated again, besides no memory."""
    contexts: Lengths = ()
    """Context lengths for the relative effective context length (RECL) of causal models. Default: not
    measured."""
    context_tokens: PositiveInt = 1000
    """Number of tokens for this measurement."""
    tasks: Annotated[tuple[TaskConfig, ...], Field(strict=False, max_length=32)] = ()


class PaperConfig(Section):
    """A column of results in a paper, for the same variants."""

    source: str
    """Paper, table and metric."""
    ours: str = "validation"
    """Our metric to compare it with: "validation", or the name of a task."""
    better: Literal["lower", "higher"] = "lower"
    """Whether lower or higher values in the paper are better."""
    values: dict[str, float]
    """Values of the paper, by the names of variants."""


class StudyConfig(Section):
    """A study: a question, the variants that answer it, and their comparison."""

    title: str = ""
    """Title of the report. Default: the name of the file."""
    question: str = ""
    """Question that the study answers."""
    limits: Names = ()
    """Limitations of the study, such as differences from a paper."""
    preset: str | None = None
    """Preset from which the base starts. Default: none; the base is complete."""
    base: BaseConfig = BaseConfig()
    corpus: CorpusConfig
    budget: BudgetConfig
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1, max_length=64)] = (1, 2, 3)
    """Random seeds: each variant is run once with each of them."""
    measures: MeasuresConfig = MeasuresConfig()
    variants: Annotated[tuple[VariantConfig, ...], Field(strict=False, max_length=64)]
    """Variants; the first one is the reference."""
    paper: Annotated[tuple[PaperConfig, ...], Field(strict=False, max_length=32)] = ()
