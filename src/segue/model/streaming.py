"""Reading a stream: a few tokens at a time, with the keys and values of what was read in a Cache.

In: a LanguageModel, ids, a Cache. Out: the states that predict what follows; the Cache has moved on. Text, sampling and
saving are for `infer`.

What a token sees does not depend on how the stream is cut: itself and the `memory_length` tokens before it, fewer where
the model's attention span is shorter. So any cut gives the numbers of one long segment in which each token sees that
many. A causal model predicts from the state of a token. A permutation model reads from left to right as well, and
predicts with its query stream: from the place behind a token, which knows where it is and sees what the token sees.
Both streams go through the layers side by side, so that the weights are read once.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from segue.config import RotaryPositions
from segue.errors import ConfigError
from segue.model.attention import ScoreBiases
from segue.model.cache import Cache
from segue.model.kernels import ScoreTerms, View, attend
from segue.model.kernels.library import available
from segue.model.kernels.step import LayerParts, Product, Steps, applies
from segue.model.language_model import LanguageModel
from segue.model.layers import Layer
from segue.model.masks import causal_mask
from segue.model.memory import Memory
from segue.model.positions import RelativeTerms, rotary_angles_at
from segue.model.values import Batch

_MOST_AT_ONCE = 512
"""Tokens of a stream that are read together, where there are many."""


class Streamer:
    """A language model that reads on."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        memory_length: int,
        eight_bits: bool = False,
        most_at_once: int = _MOST_AT_ONCE,
    ) -> None:
        """`memory_length` is how many earlier tokens each token sees; the model may have been trained with another.
        Embeddings and norms are those of the model. Matrices are too, without the compiled kernels; with them, each is
        copied once, packed as the kernel reads it; with `eight_bits`, it is copied and rounded."""
        config = model.config
        _check(model)
        self.model = model.adjusted().eval()
        """The model in modules of its own, whose matrices are `Product`s."""
        span = memory_length + 1 if config.attention_span is None else min(config.attention_span, memory_length + 1)
        self.memory_length = max(1, span - 1)
        self.most_at_once = most_at_once
        self._span, self._eight_bits = span, eight_bits
        self._stack = self.model.trunk.reader
        self._layers = [layer for layer in self._stack.layers if isinstance(layer, Layer)]
        self._reach = self.memory_length + most_at_once
        self._two_streams = config.objective == "permutation"
        self._terms = self._position_terms()
        self._bins = [
            Product(weight, bias, eight_bits=eight_bits)
            for weight, bias in self.model.softmax.bins(self.model.trunk.vocabulary)
        ]
        products = [_products(layer, eight_bits=eight_bits) for layer in self._layers]
        self._steps = self._make_steps(products)

    @property
    def receptive_field(self) -> int:
        """How many of the latest tokens what follows depends on: each layer looks back by one attention span, so that
        the state of a token and all that is kept of those before it come from these, and nothing earlier matters."""
        return self.model.config.num_layers * (self._span - 1) + 1

    @property
    def steps_natively(self) -> bool:
        """Whether one token a row goes through the layers in C++."""
        return self._steps is not None

    def new_cache(self, rows: int = 1) -> Cache:
        """Of rows that have read nothing."""
        config = self.model.config
        zeros = config.memory is not None and config.memory.initial == "zeros"
        weight = self._stack.layers[0].get_parameter("attention_norm.weight")
        return self.cache_of(
            Memory.empty(
                layers=config.num_layers,
                rows=rows,
                length=self.memory_length if zeros else 0,
                width=config.width,
                valid=zeros,
                device=weight.device,
                dtype=weight.dtype,
            )
        )

    @torch.no_grad()
    def cache_of(self, memory: Memory) -> Cache:
        """Of rows that have read what the memory holds: the keys and values that the layers make of it."""
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
        rotation = None
        if isinstance(config.positions, RotaryPositions):
            rotation = rotary_angles_at(
                memory.position_B[:, None] + torch.arange(-used, 0, device=hidden_LBMD.device),
                head_width=config.resolved_head_width,
                base=config.positions.base,
                dtype=hidden_LBMD.dtype,
            )
        for index, layer in enumerate(self._layers if used else []):
            source_BMD = hidden_LBMD[index, :, memory.length - used :]
            key_BMHE, value_BMHE = layer.attention.keys_and_values(
                layer.attention_norm(source_BMD) if layer.norm_first else source_BMD, rotation
            )
            cache.key_LBHCE[index][:, :, :used] = key_BMHE.transpose(1, 2)
            cache.value_LBHCE[index][:, :, :used] = value_BMHE.transpose(1, 2)
        return cache

    @torch.no_grad()
    def read(self, ids_BQ: Tensor, cache: Cache, *, places: int = 1, real_BQ: Tensor | None = None) -> Tensor:
        """Reads at most `most_at_once` tokens of each row; gives the states that predict what follows each of the last
        `places` ones, [B, places, D].

        Where rows have different numbers of tokens, `real_BQ` says which are there; the others come first.
        """
        count, stack = ids_BQ.shape[1], self._stack
        assert 1 <= count <= self.most_at_once
        assert 1 <= places <= count
        cache.make_room(count)
        if real_BQ is not None:
            cache.make_way((~real_BQ).sum(dim=1).tolist())
        position_BQ = _positions(cache, count, real_BQ)
        batch = Batch(ids_BQ=ids_BQ)
        hidden_BSD = stack.embed(self.model.trunk.vocabulary(ids_BQ), batch, position_BQ)
        place_BS = position_BQ
        if self._two_streams:
            place_BP = position_BQ[:, count - places :] + 1
            place_BS = torch.cat([position_BQ, place_BP], dim=1)
            hidden_BSD = torch.cat([hidden_BSD, stack.embed_queries(place_BP, hidden_BSD.dtype)], dim=1)
        if count == 1 and real_BQ is None and self._steps is not None and applies(cache.key_LBHCE):
            hidden_BSD = self._step(self._steps, hidden_BSD, cache, place_BS)
        else:
            glance = self._glance(cache, count, places, real_BQ, place_BS)
            for index, layer in enumerate(self._layers):
                if len(stack.per_layer):
                    hidden_BSD = hidden_BSD + stack.per_layer[index](place_BS, hidden_BSD.dtype)
                hidden_BSD = layer.around(hidden_BSD, self._reader(index, layer, cache, glance))
        cache.advance(count, real_BQ=real_BQ)
        return stack.finish(hidden_BSD[:, hidden_BSD.shape[1] - places :])

    def fingerprint(self) -> str:
        """A hash of the model and of how it is read: caches of equal ones are interchangeable."""
        digest = hashlib.sha256(self.model.config.model_dump_json().encode())
        digest.update(f"{self.memory_length} {self._span} {self._eight_bits}".encode())
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
        """[..., D] -> [..., V]; for an adaptive softmax these are log-probabilities."""
        return self.model.logits(hidden, bins=self._bins)

    # ------------------------------------------------------------------------------------------------ token by token

    def _make_steps(self, products: list[list[Product]]) -> Steps | None:
        """The quick way for one token a row, where it knows the model's positions."""
        positions = [terms.relative for terms in self._terms]
        simple = all(
            relative is None or (relative.bias_SRH is None and relative.value_SRHE is None) for relative in positions
        )
        if not available() or not simple or isinstance(self.model.config.positions, RotaryPositions):
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

    def _step(self, steps: Steps, hidden_BSD: Tensor, cache: Cache, place_BS: Tensor) -> Tensor:
        seen_BK = cache.visible(1, real_BQ=None)
        if seen_BK.shape[1] > self._span:
            seen_BK[:, : seen_BK.shape[1] - self._span] = False
        hidden_SBD = hidden_BSD.transpose(0, 1).contiguous()
        hidden_ND = hidden_SBD.view(-1, hidden_SBD.shape[-1])
        if not len(self._stack.per_layer):
            steps.run(hidden_ND, cache.key_LBHCE, cache.value_LBHCE, seen_BK=seen_BK, end=cache.end)
            return hidden_SBD.transpose(0, 1)
        for index in range(len(self._layers)):
            hidden_SBD += self._stack.per_layer[index](place_BS.T, hidden_SBD.dtype)
            steps.run(
                hidden_ND,
                cache.key_LBHCE,
                cache.value_LBHCE,
                seen_BK=seen_BK,
                end=cache.end,
                only=slice(index, index + 1),
            )
        return hidden_SBD.transpose(0, 1)

    # ----------------------------------------------------------------------------------------------- inside a layer

    def _reader(self, index: int, layer: Layer, cache: Cache, glance: "_Glance") -> Callable[[Tensor], Tensor]:
        attention, count = layer.attention, glance.count

        def read(source_BSD: Tensor) -> Tensor:
            rotation = glance.rotation_2BSE
            key_BQHE, value_BQHE = attention.keys_and_values(
                source_BSD[:, :count], None if rotation is None else rotation[:, :, :count]
            )
            key_BKHE, value_BKHE = cache.put(index, key_BQHE, value_BQHE, real_BQ=glance.real_BQ)
            query_BSHE = attention.queries(source_BSD, rotation)
            views = [(query_BSHE[:, :count], glance.content, 0)]
            if glance.query is not None:
                views.append((query_BSHE[:, count:], glance.query, 1))
            mixed = [
                (attention.kernel or attend)(
                    query,
                    key_BKHE,
                    value_BKHE,
                    terms=self._seen_terms(index, keys=key_BKHE.shape[1], ahead=ahead),
                    view=view,
                    dropout=0.0,
                )
                for query, view, ahead in views
            ]
            result_BSD: Tensor = attention.out((mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=1)).flatten(2))
            return result_BSD

        return read

    def _glance(self, cache: Cache, count: int, places: int, real_BQ: Tensor | None, place_BS: Tensor) -> "_Glance":
        """What all layers share of one reading."""
        seen_BK = cache.visible(count, real_BQ=real_BQ)
        num_keys = seen_BK.shape[1]
        mask_BQK = seen_BK[:, None]
        if count > 1 or num_keys > self._span:
            mask_BQK = mask_BQK & causal_mask(
                num_queries=count, num_keys=num_keys, span=self._span, device=seen_BK.device
            )
        if real_BQ is not None:  # where there is no token, one key is seen, so that no row is empty
            mask_BQK = mask_BQK | (~real_BQ[:, :, None] & (torch.arange(num_keys, device=seen_BK.device) == 0))
        rotation = None
        positions = self.model.config.positions
        if isinstance(positions, RotaryPositions):
            rotation = rotary_angles_at(
                place_BS,
                head_width=self.model.config.resolved_head_width,
                base=positions.base,
                dtype=cache.key_LBHCE.dtype,
            )
        query = View(mask_BQK=mask_BQK[:, count - places :], segment_length=places) if self._two_streams else None
        content = View(mask_BQK=mask_BQK, segment_length=count)
        return _Glance(count=count, real_BQ=real_BQ, content=content, query=query, rotation_2BSE=rotation)

    # ---------------------------------------------------------------------------------------------------- positions

    @torch.no_grad()
    def _position_terms(self) -> list[ScoreTerms]:
        """Of each layer, for all distances that may come, from the longest down to 0."""
        stack = self._stack
        weight = self._stack.layers[0].get_parameter("attention_norm.weight")
        encoding = None
        if stack.distance_encoding is not None:
            distance_R = torch.arange(self._reach + 1, -1, -1, device=weight.device)
            encoding = stack.distance_encoding(distance_R[None], weight.dtype)
        found = []
        for index, layer in enumerate(self._layers):
            attention = layer.attention
            relative = None if attention.relative is None else attention.relative(encoding)
            if relative is not None:
                relative = RelativeTerms(
                    key_SRHE=None if relative.key_SRHE is None else _by_head(relative.key_SRHE),
                    bias_SRH=relative.bias_SRH,
                    value_SRHE=None if relative.value_SRHE is None else _by_head(relative.value_SRHE),
                )
            biases = stack.biases[index % len(stack.biases)] if len(stack.biases) else None
            assert biases is None or isinstance(biases, ScoreBiases)
            found.append(attention.terms(relative, biases))
        return found

    def _seen_terms(self, index: int, *, keys: int, ahead: int) -> ScoreTerms:
        """Those of the distances of so many keys from the last token, or from the place one `ahead` of it."""
        terms = self._terms[index]
        whole = terms.relative
        if whole is None:
            return terms
        start = self._reach + 1 - keys - ahead
        here = slice(start, start + keys + 1)
        relative = RelativeTerms(
            key_SRHE=None if whole.key_SRHE is None else whole.key_SRHE[:, here],
            bias_SRH=None if whole.bias_SRH is None else whole.bias_SRH[:, here],
            value_SRHE=None if whole.value_SRHE is None else whole.value_SRHE[:, here],
        )
        return ScoreTerms(
            relative=relative, content_bias_HE=terms.content_bias_HE, position_bias_HE=terms.position_bias_HE
        )


@dataclass(frozen=True, kw_only=True)
class _Glance:
    """What all layers share of one reading of `count` tokens."""

    count: int
    real_BQ: Tensor | None
    content: View
    query: View | None
    rotation_2BSE: Tensor | None


def _positions(cache: Cache, count: int, real_BQ: Tensor | None) -> Tensor:
    if real_BQ is None:
        return cache.position_B[:, None] + torch.arange(count, device=cache.position_B.device)
    return cache.position_B[:, None] + (real_BQ.long().cumsum(dim=1) - 1).clamp(min=0)


def _products(layer: Layer, *, eight_bits: bool) -> list[Product]:
    """The products of a layer, in the order of `LayerParts`, put in the places of its linear modules."""
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
    """The same tensor, in memory head by head: what one head reads lies together."""
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
    if getattr(config.positions, "count_from", "start") == "end":
        raise ConfigError(
            'a stream needs positions that count from the start; got count_from "end", where every new token changes '
            "the position of all others. Use another model."
        )
