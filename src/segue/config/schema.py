"""Every setting, in pipeline order, with its meaning and range. Rules that involve several settings are in `rules`.

`None` means "not there" or "no limit"; no number has a special meaning. TOML has no null: omit the key.
"""

from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field

# Every number has a maximum, far above that of any published model, so that no config can request endless work.
LARGEST_VOCABULARY = 2**24
PositiveInt: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]
Length: TypeAlias = Annotated[int, Field(ge=1, le=2**24)]
"""Length in tokens."""
Width: TypeAlias = Annotated[int, Field(ge=1, le=2**20)]
SmallCount: TypeAlias = Annotated[int, Field(ge=1, le=2**11)]
"""Maximum number of separate parts of a model, such as its layers."""
Seed: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
Probability: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
PositiveFloat: TypeAlias = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
WeightDecay: TypeAlias = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of settings: unknown keys are errors, values are never silently converted or changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


# ---------------------------------------------------------------------------------------------- vocabulary


class VocabularyConfig(Section):
    """Token embeddings and the output softmax."""

    size: Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)]
    """Vocabulary size."""
    width: Width | None = None
    """Width of the (first) embedding table; where it differs from `model.width`, a projection is added. Default:
    `model.width`."""
    scale: bool = False
    """Multiply embeddings by the square root of `model.width`, as Transformer-XL does and XLNet does not."""
    cutoffs: Annotated[tuple[PositiveInt, ...], Field(strict=False, max_length=64)] = ()
    """Ids at which the clusters of the adaptive softmax begin, in ascending order. Default: none, a plain softmax."""
    shrink: Width = 1
    """Cluster i has embeddings of width `width // shrink**i` (div_val in the original code); 1 keeps one table for
    all."""
    project_first_bin: bool = True
    """With `shrink` above 1: project the first cluster even where its width is `model.width` already."""
    tie_weights: bool = True
    """Tie the output weights to the input embeddings."""
    tie_projections: Literal["none", "all_but_first", "all"] = "all_but_first"
    """Clusters whose output projection is tied to their input projection; the others learn one of their own."""
    cluster_order: Literal["forward", "reversed"] = "forward"
    """Column of cluster i in the head: `cutoffs[0] + i - 1` (TensorFlow, transformers), or the i-th from
    the end (the original PyTorch code)."""
    transform: bool = False
    """A dense layer, activation and LayerNorm between the trunk and the softmax (BERT)."""


# ----------------------------------------------------------------------------------------------- positions


class XLPositions(Section):
    """Relative positional encoding of Transformer-XL: projected sinusoids of the distance, with the biases u and v (Dai
    et al. 2019)."""

    kind: Literal["xl"] = "xl"
    biases: Literal["vectors", "tied", "buckets", "none"] = "vectors"
    """vectors: u and v, a vector each for each head (paper). tied: one vector for each head serves as both. buckets: u
    and v have a vector for each head and bucket of distances. none: neither u nor v."""
    shared_biases: bool = True
    """One u and v for all layers (paper, enwik8 and text8 releases) or one for each (wt103, lm1b, XLNet)."""
    bias_init: Literal["normal", "zeros"] = "normal"
    """Initial u and v: normal with `model.init_std`, or zeros."""
    clamp_distance: Length | None = None
    """Distances are clamped to this length (clamp_len in the original code, whose releases use it at evaluation only).
    Default: no clamping."""


class ShawPositions(Section):
    """Shaw et al. 2018: a learned vector for each clipped distance, on the keys, and optionally on the values."""

    kind: Literal["shaw"] = "shaw"
    clip_distance: Length = 16
    """Distances are clipped to this length in both directions (k of the paper)."""
    on_values: bool = True
    """Whether to add the vectors to the values as well as to the keys."""


class LearnedRelativePositions(Section):
    """The original PyTorch code's attention type 1, which it calls Shaw: for each layer, head and distance a
    learned key and a scalar, and the bias u. No value side."""

    kind: Literal["learned_relative"] = "learned_relative"
    max_distance: Length = 512
    """Distances are clipped to this length."""


class AbsolutePositions(Section):
    """A position vector added to the embedding (Vaswani et al. 2017; GPT and BERT learn it)."""

    kind: Literal["absolute"] = "absolute"
    encoding: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Whether position vectors are sinusoidal or learned."""
    max_length: Length = 512
    """Number of learned positions; sinusoids have no limit."""
    count_from: Literal["start", "end"] = "start"
    """`end` gives the last token of the segment position 0, as the original PyTorch code's type 2 does."""


class PerLayerPositions(Section):
    """A learned position vector added to the input of every layer (Al-Rfou et al. 2018)."""

    kind: Literal["per_layer"] = "per_layer"
    max_length: Length = 512
    """Number of learned positions."""


class RotaryPositions(Section):
    """Queries and keys rotated by their position (Su et al. 2021); first half of a head against the second."""

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10000.0
    """Base of the rotation frequencies: the slowest pair rotates by about 1 / base per position."""


class AlibiPositions(Section):
    """A penalty that grows with the distance, with a fixed slope for each head (Press et al. 2021)."""

    kind: Literal["alibi"] = "alibi"


class NoPositions(Section):
    """No positional encoding: the order of tokens shows only through the attention mask."""

    kind: Literal["none"] = "none"


Positions: TypeAlias = (
    XLPositions
    | ShawPositions
    | LearnedRelativePositions
    | AbsolutePositions
    | PerLayerPositions
    | RotaryPositions
    | AlibiPositions
    | NoPositions
)
POSITION_KINDS: dict[str, type[Section]] = {cls.model_fields["kind"].default: cls for cls in get_args(Positions)}


# -------------------------------------------------------------------------------------------------- memory


class MemoryConfig(Section):
    """Segment-level recurrence: the hidden states that a segment leaves for the next one."""

    length: Length
    """Number of cached positions per layer (mem_len)."""
    initial: Literal["empty", "zeros"] = "empty"
    """Initial memory. empty: nothing to attend to. zeros: zero vectors, as in the TensorFlow code and its releases."""
    reuse_length: Length | None = None
    """Cache only this many first positions of a segment, because the next segment begins after them (reuse_len of
    XLNet). Default: the whole segment."""
    backprop_segments: PositiveInt | None = None
    """Backpropagate through the memory of this many earlier segments (truncated backpropagation through time). Default:
    the memory is a constant."""


# --------------------------------------------------------------------------------------------------- model


class AuxiliaryConfig(Section):
    """The auxiliary losses of Al-Rfou et al. 2018: every layer predicts, and further tokens too."""

    targets: SmallCount = 2
    """Number of following tokens that each position predicts; those after the first have weight one half."""


class ModelConfig(Section):
    """The trunk and its four choices: positions, memory, objective, output."""

    objective: Literal["causal", "permutation", "masked"] = "causal"
    """causal: left-to-right language modelling. permutation: permutation language modelling with two-stream attention
    (XLNet). masked: masked language modelling (BERT)."""
    vocabulary: VocabularyConfig
    positions: Annotated[Positions, Field(discriminator="kind")] = XLPositions()
    memory: MemoryConfig | None = None
    """Default: no memory; every segment is read on its own."""
    attention_span: Length | None = None
    """Each query attends to exactly this many latest keys, itself included (causal only). `same_length` of the original
    PyTorch code and of transformers is the memory length; of the TensorFlow code, memory length + 1."""
    segments: Literal["relative", "absolute"] | None = None
    """Segment encodings. relative: whether two positions are of the same segment enters the attention score (XLNet).
    absolute: a segment embedding is added to the token embedding (BERT)."""
    num_segments: SmallCount = 2
    """Number of absolute segment embeddings."""
    directions: Literal["forward", "both"] = "forward"
    """both: a second causal stack reads the segment from its end, and the hidden states of both are concatenated."""

    num_layers: SmallCount = 12
    """Number of layers."""
    width: Width = 512
    """Width of the hidden states (d_model)."""
    num_heads: SmallCount = 8
    """Number of attention heads."""
    head_width: Width | None = None
    """Width of an attention head (d_head). Default: `width / num_heads`."""
    inner_width: Width = 2048
    """Width of the feed-forward layers (d_inner)."""
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    """Activation of the feed-forward layers. gelu is exact (erf); gelu_tanh is the approximation in the original XLNet
    and GPT code."""
    attention_bias: bool = False
    """Biases on the query, key, value and output projections (GPT, BERT)."""
    norm_first: bool = False
    """Pre-norm: LayerNorm on the input of each sub-layer instead of on its sum with the residual."""
    final_norm: bool = False
    """One more LayerNorm after the last layer."""
    embedding_norm: bool = False
    """LayerNorm after the embeddings (BERT)."""
    norm_epsilon: PositiveFloat = 1e-5
    """Epsilon of LayerNorm; 1e-12 in the TensorFlow releases of both models and in BERT."""
    dropout: Probability = 0.1
    """Dropout on embeddings, sub-layers and feed-forward activations."""
    attention_dropout: Probability = 0.0
    """Dropout on the attention probabilities."""
    auxiliary: AuxiliaryConfig | None = None
    """Default: only the last layer predicts, and only the next token."""
    init_std: PositiveFloat = 0.02
    """Standard deviation of the initial weights, embeddings and score biases."""
    projection_init_std: PositiveFloat = 0.01
    """Standard deviation of the initial projections between embedding tables and model width."""

    @property
    def bidirectional(self) -> bool:
        """True if a token may attend to later tokens of its segment."""
        return self.objective != "causal"

    @property
    def resolved_head_width(self) -> int:
        return self.head_width if self.head_width is not None else self.width // self.num_heads

    @property
    def learned_positions(self) -> int | None:
        """Number of learned positions; None if segments may have any length."""
        if isinstance(self.positions, AbsolutePositions) and self.positions.encoding == "sinusoidal":
            return None
        if isinstance(self.positions, AbsolutePositions | PerLayerPositions):
            return self.positions.max_length
        return None

    @property
    def hidden_width(self) -> int:
        """Width of the hidden states that a head reads."""
        return 2 * self.width if self.directions == "both" else self.width


# ---------------------------------------------------------------------------------------------------- data


class PermutationConfig(Section):
    """Sampling of prediction targets and factorisation orders (Yang et al. 2019, and their code)."""

    one_in: Length = 6
    """Predict one token in this many (K in the paper)."""
    longest_span: SmallCount = 5
    """Maximum length of a target span in units; a length of n has a probability proportional to 1 / n."""
    context_ratio: Annotated[float, Field(ge=1, le=2**24, allow_inf_nan=False)] = 6.0
    """Ratio of context to span: a span of n units is drawn within a context of this times n units."""
    spans: Literal["pieces", "words", "characters"] = "pieces"
    """Unit of a span, and where one may begin. pieces: the released code, spans begin at a word. words: what its
    authors intended. characters: begins anywhere, for text without word borders such as Chinese."""
    permutation_size: Length | None = None
    """Number of positions permuted together. Default: half of the segment. It divides the text that is permuted: each
    half of the segment where they are kept apart (with pairs, or with memory.reuse_length), else the segment."""
    pairs: bool = True
    """The second half of a segment is A SEP B SEP CLS, B following A or drawn from elsewhere; otherwise plain text. The
    next segment begins half a segment further on."""


class MaskingConfig(Section):
    """Corruption of tokens for the masked objective (Devlin et al. 2018)."""

    rate: Probability = 0.15
    """Share of the tokens that are predicted, at least one of them."""
    masked: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of the predicted tokens that are replaced by the mask token."""
    random: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the predicted tokens that are replaced by a random token; the others stay as they are."""
    whole_words: bool = False
    """Whole-word masking: corrupt all pieces of a word together."""
    longest_word: Length = 8
    """A run of more pieces than this without a word border is text without borders, such as Chinese: each of its pieces
    is then a word."""


class DataConfig(Section):
    """Training data and batching."""

    store: str
    """Folder written by `segue prepare`."""
    validation: str | None = None
    """Validation store, prepared with the same tokeniser. Default: none."""
    lanes: PositiveInt = 8
    """Batch size over all processes: parallel streams of text, where row b of a batch continues row b of the batch
    before."""
    segment_length: Length = 128
    """Tokens per segment."""
    reset_at_documents: bool = False
    """Reset the memory where a document begins; segments then end where documents end."""
    backward_lanes: bool = False
    """The second half of the lanes reads the text of the first half from its end (bidirectional data)."""
    targets: Literal["all", "second_half"] = "all"
    """Positions of a segment with a training loss, for objective "causal". second_half: those with at least half a
    segment of context (half losses of the Transformer-XL paper). Validation counts all."""
    permutation: PermutationConfig = PermutationConfig()
    """Settings for objective "permutation"."""
    masking: MaskingConfig = MaskingConfig()
    """Settings for objective "masked"."""


# --------------------------------------------------------------------------------------------------- train


class TrainConfig(Section):
    """Training settings, the same for all objectives."""

    steps: PositiveInt = 1000
    """Number of optimizer updates."""
    seed: Seed = 0
    """Seed for the initial weights, dropout, and everything drawn for batches."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon: the weight matrices of the layers are updated by Muon (orthogonalised momentum; Jordan et al. 2024), all
    other weights by AdamW, at one learning rate."""
    learning_rate: PositiveFloat = 2.5e-4
    """Peak learning rate."""
    schedule: Literal["cosine", "linear", "inverse_sqrt", "constant", "warmup_stable_decay"] = "cosine"
    """Learning rate schedule after the warm-up. warmup_stable_decay: constant, then a line down in the last
    `decay_steps` (trapezoid; Hu et al. 2024, Hägele et al. 2024). With constant, inverse_sqrt, and warmup_stable_decay
    before its decay, a run may be made longer when it is resumed."""
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Steps of linear warm-up from zero."""
    decay_steps: PositiveInt | None = None
    """Final steps in which the rate decays (warmup_stable_decay). Default: a fifth of `steps`."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of the peak rate that is left at the last step (cosine, linear, warmup_stable_decay)."""
    weight_decay: WeightDecay = 0.01
    """Decoupled weight decay of weight matrices and embeddings; biases and norms have none."""
    beta1: Probability = 0.9
    """Decay of the first moment of Adam."""
    beta2: Probability = 0.999
    """Decay of the second moment of Adam."""
    epsilon: PositiveFloat = 1e-8
    """Epsilon of Adam."""
    clip_norm: PositiveFloat | None = 0.25
    """Maximum norm of the gradient; longer gradients are clipped."""
    accumulate: PositiveInt = 1
    """Gradient accumulation: the rows of each batch are split into this many parts that go through the model one after
    another, each with its own rows of the memory. The same update with less memory."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: mixed precision by autocast; weights and optimizer state stay in float32."""
    recompute: bool = False
    """Activation checkpointing: recompute each layer in the backward pass. The same numbers, less memory, more time."""
    sharded: bool = False
    """Shard weights, gradients and optimizer state over the processes (FSDP2); otherwise each process holds all of
    them."""
    average_decay: Probability | None = None
    """Keep an exponential moving average of the weights with this decay; the average is what is validated and saved as
    best. Default: none."""
    log_every: PositiveInt = 10
    """Steps between two logged lines of metrics."""
    validate_every: PositiveInt | None = None
    """Steps between two validations. Default: only one at the end, if there is a validation store."""
    validation_steps: PositiveInt | None = None
    """Maximum number of batches per validation. Default: all."""
    save_every: PositiveInt = 200
    """Steps between two saved checkpoints."""
    patience: PositiveInt = 5
    """A step whose loss or gradient is not finite is skipped; this many in a row end the run."""

    @property
    def resolved_decay_steps(self) -> int:
        return self.decay_steps if self.decay_steps is not None else max(1, self.steps // 5)


# ------------------------------------------------------------------------------------------------- fine-tuning


class ReadConfig(Section):
    """Reading of documents for a task, segment by segment."""

    segment_length: Length | None = None
    """Tokens per segment. Default: 512, or all positions of a model that has fewer."""
    memory_length: Length | None = None
    """Memory length in tokens. Default: long enough that 95 % of multi-segment documents are remembered from their
    first token, up to 512, and not shorter than in pretraining."""
    carry: bool = True
    """Carry memory from segment to segment; models with learned absolute positions never do."""
    overlap: Length | None = None
    """Sliding windows: each segment repeats this many tokens of the one before; for reading without memory (`carry`
    false). Default: no token is read twice."""
    gradient_segments: PositiveInt | None = None
    """Number of final segments of a document that receive gradients; earlier ones are read only for their memory. For
    tasks with an answer at every token: number of segments that gradients flow back through memory. Default: all
    segments of the longest document, up to 16,384 tokens."""
    max_length: PositiveInt | None = None
    """Truncate texts to this many tokens, and report how many were truncated. Default: texts are read to the end."""
    summary: Literal["first", "last", "mean", "attention"] | None = None
    """Pooling over the tokens of a segment. Default: mean for models up to a width of 384, with new weights, or where
    documents have several segments; otherwise CLS, the first token of masked models, the last one of others."""
    pool: Literal["last", "mean", "max", "attention"] | None = None
    """Pooling over the segments of a document. Default: mean."""


class FinetuneConfig(Section):
    """Fine-tuning settings."""

    epochs: PositiveInt | None = None
    """Maximum number of passes over the examples. Default: 3, and up to 10 for small tables, to make 600 updates."""
    batch_size: PositiveInt = 16
    """Examples per update."""
    learning_rate: PositiveFloat | None = None
    """Peak learning rate of the head. Default: 12288 / model.width ** 3, with new weights 0.2 / model.width, but not
    above 0.001: for pretrained models 0.001 if they are small, 2.7e-5 at a width of 768."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """Layer-wise learning rate decay: each layer has this times the rate of the layer above it, down to the embeddings.
    Default: 0.9, with new weights 1."""
    warmup_share: Probability = 0.1
    """Share of the updates with linear warm-up; the rate then decays linearly to zero."""
    weight_decay: WeightDecay = 0.01
    """Decoupled weight decay of weight matrices and embeddings; biases and norms have none."""
    clip_norm: PositiveFloat = 1.0
    """Maximum norm of the gradient; longer gradients are clipped."""
    dropout: Probability | None = None
    """Dropout of all layers. Default: as the model was trained; with new weights, 0.1 at least."""
    class_weights: bool = False
    """Weight each class inversely to its frequency."""
    validations: PositiveInt = 1
    """Validations per epoch."""
    early_stopping: PositiveInt = 3
    """Early stopping: end after this many validations in a row without improvement."""
    restarts: Annotated[int, Field(ge=0, le=2**11)] = 2
    """Maximum number of restarts, each with half the learning rate, after training has collapsed."""
    seed: Seed = 0
    """Seed for new weights, dropout and the order of the examples."""


# ------------------------------------------------------------------------------------------------------ all


class Config(Section):
    """All settings of a run, in the order of the pipeline."""

    data: DataConfig | None = None
    """Training data; absent if only a model is described."""
    model: ModelConfig
    train: TrainConfig | None = None
    """Training settings; absent if nothing is trained."""
