"""Every setting of a study file, with what it means. Rules that settings must keep together are in `load`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from segue.config import Section
from segue.config.schema import Length, PositiveInt, Probability, Seed

Settings = dict[str, Any]
"""Tables and values, as in a config file."""
Names = Annotated[tuple[str, ...], Field(strict=False, max_length=64)]
Lengths = Annotated[tuple[Length, ...], Field(strict=False, max_length=64)]


class CorpusConfig(Section):
    """The text that all variants are pretrained on."""

    samples: Names = ()
    """Corpora that `segue sample` writes, by name; several are read as one."""
    files: Names = ()
    """Files, folders or globs of text, read with the samples."""
    store: str | None = None
    """A store that is prepared already, in place of samples and files."""
    validation: str | None = None
    """Validation store, beside `store`."""
    kind: Literal["unigram", "bpe", "words", "characters", "bytes"] = "unigram"
    """Kind of the tokeniser that is trained."""
    vocabulary_size: PositiveInt | None = None
    """Size of its vocabulary. Default: that of `segue prepare`."""
    documents: Literal["block", "line", "file", "record"] | None = None
    """What a document is. Default: that of `segue prepare`."""
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the documents that are kept for validation."""


class BudgetConfig(Section):
    """What all variants have the same amount of."""

    rule: Literal["tokens", "parameters", "multiply_adds"] = "tokens"
    """tokens: each variant reads as many. multiply_adds: each variant spends as many multiply-adds as the first one,
    with more or fewer tokens. parameters: each variant reads as many tokens, and the inner width of its layers is
    chosen so that it has as many parameters as the first one."""
    tokens: Annotated[int, Field(ge=1, le=10**15)]
    """Number of tokens that the first variant reads."""
    points: Annotated[int, Field(ge=1, le=1000)] = 8
    """Number of validations, at equal shares of the budget."""
    warmup_share: Probability = 0.05
    """Share of the updates with linear warm-up of the learning rate."""


class BaseConfig(Section):
    """Settings that all variants have."""

    model: Settings = Field(default_factory=dict)
    data: Settings = Field(default_factory=dict)
    train: Settings = Field(default_factory=dict)


class VariantConfig(BaseConfig):
    """Settings that differ from the base; those of fine-tuning may differ too."""

    name: str
    about: str = ""
    """What it is, in words."""
    without: Names = ()
    """Settings of the base that are left out, by dotted names: "model.memory"."""
    finetune: Settings = Field(default_factory=dict)
    """Settings of fine-tuning, over those of the task: [read], [train] and [task]."""


class PlantedConfig(Section):
    """Long documents of real text in which one sentence, late in the document, says the class."""

    sample: str = "english"
    """Corpus that the documents are made of."""
    shortest: PositiveInt = 300
    """Fewest words of a document."""
    longest: PositiveInt = 4000
    """Most words of a document; lengths are spread evenly on a logarithmic scale."""
    train_shortest: PositiveInt | None = None
    """Fewest words of a training or validation document. Default: `shortest`."""
    train_longest: PositiveInt | None = None
    """Most words of a training or validation document. Default: `longest`."""
    earliest: Annotated[float, Field(ge=0, le=0.99)] = 0.7
    """Earliest place of the sentence, as a share of the document."""
    classes: Annotated[int, Field(ge=2, le=8)] = 2
    """Number of classes."""

    @property
    def lengths(self) -> tuple[int, int]:
        """Fewest and most words of a test document."""
        return self.shortest, self.longest

    @property
    def train_lengths(self) -> tuple[int, int]:
        """Fewest and most words of a training or validation document."""
        return self.train_shortest or self.shortest, self.train_longest or self.longest


class TaskConfig(Section):
    """A task that every variant is fine-tuned for."""

    name: str
    task: str = "classify"
    """The task, as `segue finetune` names it."""
    sample: str | None = None
    """Labelled texts that `segue sample` writes, by name."""
    planted: PlantedConfig | None = None
    """Documents with a planted sentence, made of a sample."""
    train: str | None = None
    """Table of training examples, in place of a sample."""
    valid: str | None = None
    """Table of validation examples. Default: a part of the training examples."""
    test: str | None = None
    """Table of test examples, by which variants are compared. Default: validation examples."""
    train_rows: PositiveInt = 2000
    """Training examples that are taken from a sample."""
    valid_rows: PositiveInt = 500
    """Validation examples that are taken from a sample."""
    test_rows: PositiveInt = 1000
    """Test examples that are taken from a sample."""
    metric: str | None = None
    """Measure that is reported. Default: the one that decides which weights are best."""
    new_weights: bool = False
    """Use the shape of the pretrained model, not its weights."""
    settings: Settings = Field(default_factory=dict)
    """Settings of fine-tuning: [read], [train] and [task]."""


class MeasuresConfig(Section):
    """What is measured of each run."""

    unit: Literal["perplexity", "bits_per_character", "loss"] = "perplexity"
    """How the loss on the validation store is shown; for a token, but for bits per character."""
    validation_tokens: PositiveInt | None = None
    """Most tokens of the validation store that are read. Default: all."""
    memory_lengths: Lengths = ()
    """Lengths of memory at which causal models are measured again, beside none at all."""
    contexts: Lengths = ()
    """Context lengths for the relative effective context length (RECL) of causal models. Default: not
    measured."""
    context_tokens: PositiveInt = 1000
    """Number of tokens that it is measured on."""
    tasks: Annotated[tuple[TaskConfig, ...], Field(strict=False, max_length=32)] = ()


class PaperConfig(Section):
    """A column of figures of a paper, for the same variants."""

    source: str
    """Paper, table and measure."""
    ours: str = "validation"
    """Which of our measures stands beside it: "validation", or the name of a task."""
    better: Literal["lower", "higher"] = "lower"
    """Which of the paper's figures are better."""
    values: dict[str, float]
    """The figures, by the names of variants."""


class StudyConfig(Section):
    """A study: a question, the variants that answer it, and how they are compared."""

    title: str = ""
    """Default: the name of the file."""
    question: str = ""
    """What the study is to settle, in words."""
    limits: Names = ()
    """What the study does not say, in words: where it departs from a paper."""
    preset: str | None = None
    """Preset that the base starts from. Default: none; the base says all."""
    base: BaseConfig = BaseConfig()
    corpus: CorpusConfig
    budget: BudgetConfig
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1, max_length=64)] = (1, 2, 3)
    """Each variant is run once with each of them."""
    measures: MeasuresConfig = MeasuresConfig()
    variants: Annotated[tuple[VariantConfig, ...], Field(strict=False, max_length=64)]
    """The first one is what the others are compared with."""
    paper: Annotated[tuple[PaperConfig, ...], Field(strict=False, max_length=32)] = ()
