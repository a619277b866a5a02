"""Reading of a stream: a few tokens at a time, with the keys and values of earlier tokens in a Cache.

In: a LanguageModel, ids, a Cache. Out: the states that predict the next tokens; the Cache is updated. Text, sampling
and saving are left to `infer`.

The visibility of a token does not depend on how the stream is split: it sees itself and the `memory_length` tokens
before it, fewer if the model's attention span is shorter. So any split gives the numbers of one long segment in which
each token sees that many. A causal model predicts from the state of a token. A permutation model also reads from left
to right, and predicts with its query stream: from the position behind a token, which sees what the token sees. The
content stream and the query stream go through the layers together, so that the weights are read once.
"""

import hashlib
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from segue.errors import ConfigError
from segue.model.cache import Cache
from segue.model.kernels import ScoreTerms, View
from segue.model.kernels.library import available
from segue.model.kernels.step import LayerParts, Product, Steps, applies
from segue.model.language_model import LanguageModel
from segue.model.layers import Layer
from segue.model.masks import stream_mask
from segue.model.memory import Memory
from segue.model.positions import RelativeTerms
from segue.model.stack import Stack, Streams

_MOST_AT_ONCE = 512
"""Maximum number of tokens of a stream read together."""


class Streamer:
    """A language model prepared to read a stream."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        memory_length: int,
        eight_bits: bool = False,
        most_at_once: int = _MOST_AT_ONCE,
    ) -> None:
        """Prepare a model. `memory_length`: number of earlier tokens that each token sees; may differ from training.

        Embeddings and norms are those of the model, not copied. So are its matrices if the compiled kernels are
        missing; otherwise each matrix is copied once, packed in the layout of the kernel, and with `eight_bits` also
        quantised.
        """
        config = model.config
        _check(model)
        self.model = model.adjusted().eval()
        """The model in separate modules, whose matrices are `Product`s."""
        self.span = (
            memory_length + 1 if config.attention_span is None else min(config.attention_span, memory_length + 1)
        )
        """Number of tokens that each token sees, itself included."""
        self.memory_length = max(1, self.span - 1)
        self.most_at_once = most_at_once
        self._eight_bits = eight_bits
        self._stack: Stack = self.model.trunk.reader
        self._layers = self._stack.each_layer()
        self._longest = self.memory_length + most_at_once + 1
        """Maximum distance that may occur."""
        self._terms = self._score_terms()
        self._bins = [
            Product(weight, bias, eight_bits=eight_bits)
            for weight, bias in self.model.softmax.bins(self.model.trunk.vocabulary)
        ]
        products = [_products(layer, eight_bits=eight_bits) for layer in self._layers]
        self._steps = self._make_steps(products)

    @property
    def receptive_field(self) -> int:
        """Number of the latest tokens that can influence the prediction: each layer looks back by one attention span,
        so the state of a token, and everything in the cache, depends on these tokens only."""
        return self.model.config.num_layers * (self.span - 1) + 1

    @property
    def steps_natively(self) -> bool:
        """True if single tokens go through the layers in C++."""
        return self._steps is not None

    def new_cache(self, rows: int = 1) -> Cache:
        """Return the cache of rows that have read nothing."""
        settings = self.model.config.memory
        zeros = settings is not None and settings.initial == "zeros"
        return self.cache_of(self._stack.initial_memory(rows, length=self.memory_length if zeros else 0))

    @torch.no_grad()
    def cache_of(self, memory: Memory) -> Cache:
        """Return the cache for the content of a memory, with the keys and values projected from it."""
        config, hidden_LBMD = self.model.config, memory.hidden_LBMD
        cache = Cache(
            layers=config.num_layers,
            rows=memory.rows,
            length=self.memory_length,
            most_at_once=self.most_at_once,
            num_heads=config.num_heads,
            head_width=config.resolved_head_width,
            device=hidden_LBMD.device,
            dtype=hidden_LBMD.dtype,
        )
        used = min(memory.length, cache.length)
        cache.valid_BC[:, :used] = memory.valid_BM[:, memory.length - used :]
        cache.position_B.copy_(memory.position_B)
        cache.end = used
        position_BM = memory.position_B[:, None] + torch.arange(-used, 0, device=hidden_LBMD.device)
        rotation = self._stack.rotation_at(position_BM, hidden_LBMD.dtype)
        for index, layer in enumerate(self._layers if used else []):
            source_BMD = hidden_LBMD[index, :, memory.length - used :]
            key_BMHE, value_BMHE = layer.attention.keys_and_values(
                layer.attention_norm(source_BMD) if layer.norm_first else source_BMD, rotation
            )
            cache.key_LBHCE[index][:, :, :used] = key_BMHE.transpose(1, 2)
            cache.value_LBHCE[index][:, :, :used] = value_BMHE.transpose(1, 2)
        return cache

    @torch.no_grad()
    def read(
        self,
        ids_BQ: Tensor,
        cache: Cache,
        *,
        places: int = 1,
        real_BQ: Tensor | None = None,
        embedded_BQD: Tensor | None = None,
    ) -> Tensor:
        """Read at most `most_at_once` tokens of each row; return the states that predict the token after each of the
        last `places` tokens, [B, places, D].

        If rows have different numbers of tokens, `real_BQ` is the mask of real ones; padding comes first. The vectors
        `embedded_BQD`, if given, are read in place of the vocabulary's embeddings.
        """
        count, stack = ids_BQ.shape[1], self._stack
        assert 1 <= count <= self.most_at_once
        assert 1 <= places <= count
        cache.make_room(count)
        if real_BQ is not None:
            cache.make_way((~real_BQ).sum(dim=1).tolist())
        position_BJ = stack.positions(ids_BQ, real_BQ, cache.position_B)
        vectors_BQD = self.model.trunk.vocabulary(ids_BQ) if embedded_BQD is None else embedded_BQD
        hidden_BJD = stack.embed(vectors_BQD, position_BJ)
        if stack.two_streams:
            behind_BP = position_BJ[:, count - places :] + 1
            position_BJ = torch.cat([position_BJ, behind_BP], dim=1)
            hidden_BJD = torch.cat([hidden_BJD, stack.embed_queries(behind_BP, hidden_BJD.dtype)], dim=1)
        valid_BK = cache.visible(count, real_BQ=real_BQ)
        mask_BQK = stream_mask(valid_BK, num_queries=count, span=self.span, real_BQ=real_BQ)
        if count == 1 and real_BQ is None and self._steps is not None and applies(cache.key_LBHCE):
            hidden_BJD = self._step(self._steps, hidden_BJD, cache, position_BJ, mask_BQK[:, 0])
        else:
            views = [View(mask_BQK=mask_BQK, segment_length=count)]
            if stack.two_streams:
                views.append(View(mask_BQK=mask_BQK[:, count - places :], segment_length=places))
            rotation = stack.rotation_at(position_BJ, cache.key_LBHCE.dtype)

            def attention(index: int, layer: Layer, states_BJD: Tensor) -> Tensor:
                return layer.attention.forward_stream(
                    states_BJD,
                    views=views,
                    rotation_2BJE=rotation,
                    extend=partial(cache.put, index, real_BQ=real_BQ),
                    terms=partial(self._terms_seen, index),
                )

            hidden_BJD = stack.run_stream(hidden_BJD, position_BJ, attention)
        cache.advance(count, real_BQ=real_BQ)
        return stack.finish(hidden_BJD[:, hidden_BJD.shape[1] - places :])

    def fingerprint(self) -> str:
        """Return a hash of model and settings: streamers with the same fingerprint can exchange caches."""
        digest = hashlib.sha256(self.model.config.model_dump_json().encode())
        digest.update(f"{self.memory_length} {self.span} {self._eight_bits}".encode())
        weights: dict[str, Tensor] = dict(self.model.named_parameters())
        for name, part in self.model.named_modules():
            if isinstance(part, Product):
                weights[f"{name}.weight"] = part.dense()
                if part.bias_O is not None:
                    weights[f"{name}.bias"] = part.bias_O
        for name, tensor in sorted(weights.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [..., V] for hidden states [..., D]; log-probabilities for an adaptive softmax."""
        return self.model.logits(hidden, bins=self._bins)

    # ------------------------------------------------------------------------------------------------ token by token

    def _make_steps(self, products: list[list[Product]]) -> Steps | None:
        """Return the compiled kernel for one token per row; None if it is missing or does not fit."""
        positions = [terms.relative for terms in self._terms]
        simple = all(relative is None or relative.keys_alone for relative in positions)
        if not available() or not simple or self._stack.rotary is not None:
            return None
        if not applies(self._stack.layers[0].get_parameter("attention_norm.weight")):
            return None
        return Steps(
            [
                LayerParts(
                    products=products[index],
                    attention_norm=layer.attention_norm,
                    feed_forward_norm=layer.feed_forward_norm,
                    norm_first=layer.norm_first,
                    activation=layer.feed_forward.activation,
                    num_heads=layer.attention.num_heads,
                    content_bias_HE=_dense(terms.content_bias_HE),
                    position_bias_HE=_dense(terms.position_bias_HE),
                    position_HRE=None if relative is None else _position_keys(relative),
                )
                for index, (layer, terms, relative) in enumerate(zip(self._layers, self._terms, positions, strict=True))
            ]
        )

    def _step(self, steps: Steps, hidden_BJD: Tensor, cache: Cache, position_BJ: Tensor, mask_BK: Tensor) -> Tensor:
        """Take one token per row through all layers with the compiled kernel, streams one after the other."""
        stack, width = self._stack, hidden_BJD.shape[-1]
        run = partial(
            steps.run, key_LBHCE=cache.key_LBHCE, value_LBHCE=cache.value_LBHCE, seen_BK=mask_BK, end=cache.end
        )
        hidden_JBD = hidden_BJD.transpose(0, 1).contiguous()
        if not len(stack.per_layer):  # all layers in one call
            run(hidden_JBD.view(-1, width))
            return hidden_JBD.transpose(0, 1)

        def call(index: int, layer: Layer, states_JBD: Tensor, _: Tensor | None) -> Streams:
            run(states_JBD.view(-1, width), only=slice(index, index + 1))
            return states_JBD, None

        hidden_JBD, _ = stack.run_layers(hidden_JBD, None, position_BQ=position_BJ.T, at_BP=None, call=call)
        return hidden_JBD.transpose(0, 1)

    # ---------------------------------------------------------------------------------------------------- positions

    @torch.no_grad()
    def _score_terms(self) -> list[ScoreTerms]:
        """Return the score terms of each layer, for all distances from the longest that may occur down to 0."""
        found = []
        for index, relative in enumerate(self._stack.distance_terms(self._longest)):
            if relative is not None:
                relative = replace(
                    relative,
                    key_SRHE=None if relative.key_SRHE is None else _by_head(relative.key_SRHE),
                    value_SRHE=None if relative.value_SRHE is None else _by_head(relative.value_SRHE),
                )
            found.append(self._layers[index].attention.terms(relative, self._stack.biases_of(index)))
        return found

    def _terms_seen(self, index: int, num_keys: int, ahead: int) -> ScoreTerms:
        """Return the score terms of one layer for `num_keys` keys, seen from the last token or one `ahead`."""
        terms = self._terms[index]
        if terms.relative is None:
            return terms
        start = self._longest - num_keys - ahead
        return ScoreTerms(
            relative=terms.relative.between(start, start + num_keys + 1),
            content_bias_HE=terms.content_bias_HE,
            position_bias_HE=terms.position_bias_HE,
        )


def _products(layer: Layer, *, eight_bits: bool) -> list[Product]:
    """Replace the linear modules of a layer by products, and return these in the order of `LayerParts`."""
    found = []
    for part, names in ((layer.attention, ("query", "key", "value", "out")), (layer.feed_forward, ("widen", "narrow"))):
        for name in names:
            linear = part.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            found.append(Product(linear.weight, linear.bias, eight_bits=eight_bits))
            setattr(part, name, found[-1])
    return found


def _position_keys(relative: RelativeTerms) -> Tensor | None:
    return None if relative.key_SRHE is None else relative.key_SRHE[0].transpose(0, 1).contiguous()


def _dense(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().contiguous()


def _by_head(x_SRHE: Tensor) -> Tensor:
    """Return the same tensor in a head-major memory layout."""
    return x_SRHE.transpose(1, 2).contiguous().transpose(1, 2)


def _check(model: LanguageModel) -> None:
    config = model.config
    if config.objective == "masked":
        raise ConfigError(
            'a stream needs a model of objective "causal" or "permutation"; got "masked", which does not predict the '
            "next token. Use a Transformer-XL, GPT or XLNet."
        )
    if config.directions == "both":
        raise ConfigError(
            'a stream needs model.directions "forward"; got "both", which also reads from the end. Use another model.'
        )
    absolute = model.trunk.reader.absolute
    if absolute is not None and absolute.count_from_end:
        raise ConfigError(
            'a stream needs positions that count from the start; got count_from "end", where every new token changes '
            "the position of all others. Use another model."
        )
