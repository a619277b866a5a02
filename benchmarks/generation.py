"""How fast does a stream write token by token against the two models of transformers that have a memory?

    .venv-transformers4/bin/python -m benchmarks.generation --peer transformer-xl
    .venv-transformers5/bin/python -m benchmarks.generation --peer xlnet

Width 512, 6 layers, 8 heads, inner width 2048, a vocabulary of 10,000 with a plain tied softmax, 512 tokens of memory
or context, one row, float32, the same weights, the most probable token each time. Times are those of a further token,
with the memory full; what `generate` spends on the prompt counts only where the line says so.

TransfoXL of transformers 4.37.2 computes the same as a stream: its logits are compared token by token, from the first
one until the memory is full. It is timed in its own loop, `model(token, mems=mems)`, and in `generate`.

XLNet's `generate` is not the same computation: it reads the context in both directions, puts a dummy token behind it,
and with its memory also keeps states that have not seen what came later. A stream reads from left to right. So the
weights are compared in three other ways: hidden states of a plain forward, the logits of one step of `generate`, and
the stream's logits with those of their model under the permutation from left to right, token by token.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from tests.parity.weights import filled, transfo_xl_config, transfo_xl_state
from torch import Tensor

from benchmarks.peers import Peer, language_model_like, randomised, transformers_xlnet
from benchmarks.side_by_side import (
    TOLERANCE,
    Measured,
    Row,
    agree,
    arguments,
    interleave,
    say_tokens,
    tokens_row,
    write,
)
from benchmarks.streaming import MEMORY, Writer, random_ids, single_logits
from benchmarks.transformer_xl import settings_of
from segue.model import Batch, LanguageModel
from segue.model.named import xlnet
from segue.model.streaming import Streamer

GOALS = {"transformer-xl": 6.0, "xlnet": 12.0}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of the models, and the amounts that are compared and timed."""

    layers: int = 6
    width: int = 512
    vocabulary: int = 10_000
    memory: int = MEMORY
    rounds: int = 7
    compared: int = MEMORY + 8
    """Number of tokens of the stream whose logits are compared with TransfoXL's; more than the memory, so that it is
    full."""
    compared_order: int = 128
    """The same for XLNet, under one permutation."""
    tokens: int = 32
    """Number of further tokens per turn."""
    slow_tokens: int = 6
    """The same if everything is recomputed for each token."""


QUICK = {"rounds": 2, "compared": 40, "compared_order": 40, "tokens": 8, "slow_tokens": 3}


@dataclass(frozen=True)
class Clock:
    """Records when the scores of each token are known; `generate` calls it as a logits processor."""

    stamps: list[float] = field(default_factory=list)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.stamps.append(time.perf_counter())
        return scores

    def seconds_a_token(self) -> float:
        """Return the seconds for each token after the first one, which waits for the prompt."""
        return (self.stamps[-1] - self.stamps[0]) / (len(self.stamps) - 1)


def generating(model: Peer, prompt_BQ: Tensor, *, tokens: int, **settings: bool) -> Callable[[], float]:
    """Return a turn of `generate`: the first token and `tokens` further ones. It returns the seconds of a further
    one."""
    from transformers import LogitsProcessorList

    model.generation_config.eos_token_id = None  # nothing ends early
    model.generation_config.pad_token_id = 0

    def turn() -> float:
        clock = Clock()
        ids_BQ = model.generate(
            prompt_BQ,
            max_new_tokens=tokens + 1,
            do_sample=False,
            logits_processor=LogitsProcessorList([clock]),
            **settings,
        )
        assert ids_BQ.shape[1] == prompt_BQ.shape[1] + tokens + 1 == prompt_BQ.shape[1] + len(clock.stamps)
        return clock.seconds_a_token()

    return turn


def returned(measured: Measured, name: str) -> list[float]:
    """Return the values that the turns of a side returned."""
    return [value for value in measured.returned[name] if value is not None]


# --------------------------------------------------------------------------------------------------- Transformer-XL


@dataclass(kw_only=True)
class TheirLoop:
    """TransfoXL in greedy decoding."""

    model: Peer
    mems: list[Tensor] | None = None
    next_B1: Tensor | None = None

    def read(self, ids_B1: Tensor) -> Tensor:
        """Return log-probabilities of the next token: [B, 1, V]."""
        output = self.model(input_ids=ids_B1, mems=self.mems)
        self.mems, self.next_B1 = output.mems, output.logits.argmax(dim=-1)
        logits_B1V: Tensor = output.logits
        return logits_B1V

    def write(self, count: int) -> None:
        for _ in range(count):
            assert self.next_B1 is not None
            self.read(self.next_B1)


def transformer_xl_pair(plan: Plan) -> tuple[Peer, Streamer]:
    """Return TransfoXL, and a stream of a model with its weights."""
    import transformers

    settings = settings_of(
        plan.memory, layers=plan.layers, width=plan.width, vocabulary=plan.vocabulary, attention_dropout=0.0
    )
    theirs = randomised(transformers.TransfoXLLMHeadModel(settings))
    ours = filled(LanguageModel(transfo_xl_config(settings)), transfo_xl_state(theirs.state_dict(), settings))
    return theirs, Streamer(ours, memory_length=plan.memory)


@torch.no_grad()
def measure_transformer_xl(plan: Plan) -> list[Row]:
    import transformers

    theirs, streamer = transformer_xl_pair(plan)
    ids_BQ = random_ids(plan.vocabulary, rows=1, length=plan.compared)
    writer, loop = Writer(streamer, ids_BQ[:, :1]), TheirLoop(model=theirs)
    their_logits_BQV = torch.cat([loop.read(id_B1) for id_B1 in ids_BQ.split(1, dim=1)], dim=1)[:, 1:]
    our_logits_BQV = single_logits(streamer, writer.cache, ids_BQ[:, 1:])
    writer.next_B1 = our_logits_BQV[:, -1:].argmax(dim=-1)
    difference = agree("log-probabilities", our_logits_BQV.log_softmax(dim=-1), their_logits_BQV, tolerance=TOLERANCE)
    prompt_BQ = random_ids(plan.vocabulary, rows=1, length=plan.memory)

    measured = interleave(
        {
            "ours": lambda: float(writer.write(plan.tokens)[0, -1]),
            "loop": lambda: loop.write(plan.tokens),
            "generate": generating(theirs, prompt_BQ, tokens=plan.tokens),
        },
        rounds=plan.rounds,
    )
    ours = [value / plan.tokens for value in measured.seconds["ours"]]
    sides = {
        "its own loop": [value / plan.tokens for value in measured.seconds["loop"]],
        "generate": returned(measured, "generate"),
    }
    name = f"transformers {transformers.__version__} TransfoXLLMHeadModel"
    return [
        tokens_row(
            work=f"Transformer-XL, a token, memory {plan.memory}",
            against=f"{name}, {side}",
            ours=ours,
            theirs=theirs_seconds,
            goal=GOALS["transformer-xl"],
        )
        | {"differences": {f"log-probabilities of {plan.compared - 1} tokens": difference}}
        for side, theirs_seconds in sides.items()
    ]


# ------------------------------------------------------------------------------------------------------------ XLNet


def xlnet_pair(plan: Plan) -> tuple[Peer, LanguageModel, Streamer]:
    config = xlnet(
        vocabulary_size=plan.vocabulary,
        num_layers=plan.layers,
        width=plan.width,
        num_heads=8,
        inner_width=4 * plan.width,
        activation="gelu",  # exact, as in transformers
        dropout=0.0,
        attention_dropout=0.0,
        memory=None,
    )
    theirs = transformers_xlnet("XLNetLMHeadModel", config)
    ours = language_model_like(theirs, config)
    return theirs, ours, Streamer(ours, memory_length=plan.memory)


def left_to_right(theirs: Peer, ids_BQ: Tensor) -> Tensor:
    """Return their logits for what follows each token, [B, Q, V]: the permutation in which every token sees those
    before it, and one more position after the last."""
    rows, length = ids_BQ.shape
    hidden_QQ = torch.ones(length + 1, length + 1).triu()  # 1: may not see; they let content see itself all the same
    logits_BPV: Tensor = theirs(
        torch.cat([ids_BQ, ids_BQ.new_zeros(rows, 1)], dim=1),
        perm_mask=hidden_QQ.expand(rows, -1, -1),
        target_mapping=torch.eye(length + 1)[1:].expand(rows, -1, -1),
        use_mems=False,
    ).logits
    return logits_BPV


def compare_xlnet(theirs: Peer, ours: LanguageModel, streamer: Streamer, plan: Plan) -> dict[str, float]:
    """Compare the weights in three ways; only the last one is what a stream computes."""
    ids_BQ = random_ids(plan.vocabulary, rows=1, length=plan.compared_order)
    want_BQD = theirs.transformer(ids_BQ, use_mems=False).last_hidden_state
    step = theirs.prepare_inputs_for_generation(ids_BQ, use_mems=False)
    visible_BQQ = step["perm_mask"] == 0
    last_BP = torch.full((1, 1), plan.compared_order)
    got = ours(Batch(ids_BQ=step["input_ids"], visible_BQQ=visible_BQQ, predicted_BP=last_BP))
    stream_BQV = single_logits(streamer, streamer.new_cache(), ids_BQ)
    return {
        "hidden states of a forward": agree(
            "hidden states", ours.trunk(Batch(ids_BQ=ids_BQ)).hidden_BQD, want_BQD, tolerance=TOLERANCE
        ),
        "logits of a step of generate": agree(
            "logits of a step", ours.logits(got.output.predicted_BPD), theirs(**step).logits, tolerance=TOLERANCE
        ),
        f"logits of {plan.compared_order} tokens from left to right": agree(
            "logits from left to right", stream_BQV, left_to_right(theirs, ids_BQ), tolerance=TOLERANCE
        ),
    }


@torch.no_grad()
def measure_xlnet(plan: Plan) -> list[Row]:
    import transformers

    theirs, ours, streamer = xlnet_pair(plan)
    differences = compare_xlnet(theirs, ours, streamer, plan)
    prompt_BQ = random_ids(plan.vocabulary, rows=1, length=plan.memory)
    writer = Writer(streamer, prompt_BQ)
    sides = {
        "ours": lambda: float(writer.write(plan.tokens)[0, -1]),
        "ours, prompt": lambda: float(Writer(streamer, prompt_BQ).write(plan.tokens)[0, -1]),
        "memory": generating(theirs, prompt_BQ, tokens=plan.tokens, use_mems=True),
        "again": generating(theirs, prompt_BQ, tokens=plan.slow_tokens, use_mems=False),
    }
    measured = interleave(sides, rounds=plan.rounds)
    a_token = [value / plan.tokens for value in measured.seconds["ours"]]
    name = f"transformers {transformers.__version__} XLNetLMHeadModel.generate"
    work = f"XLNet, a token, context {plan.memory}"
    rows = [
        tokens_row(
            work=work,
            against=f"{name}, use_mems=True, its default",
            ours=a_token,
            theirs=returned(measured, "memory"),
            goal=GOALS["xlnet"],
        ),
        tokens_row(
            work=work,
            against=f"{name}, use_mems=False",
            ours=a_token,
            theirs=returned(measured, "again"),
            goal=GOALS["xlnet"],
        ),
        tokens_row(
            work=f"XLNet, {plan.tokens + 1} tokens after a prompt of {plan.memory}, prompt included",
            against=f"{name}, use_mems=True, its default",
            ours=[value / (plan.tokens + 1) for value in measured.seconds["ours, prompt"]],
            theirs=[value / (plan.tokens + 1) for value in measured.seconds["memory"]],
            goal=None,
        ),
    ]
    return [row | {"differences": differences} for row in rows]


MEASURES = {"transformer-xl": measure_transformer_xl, "xlnet": measure_xlnet}


def main() -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--peer", choices=list(MEASURES), required=True, help="which model of transformers")

    options = arguments(__doc__, rounds=7, quick_rounds=2, add=add)
    warnings.filterwarnings("ignore", message="The output of TransfoXL will be updated")
    plan = Plan(**(QUICK if options.quick else {}) | {"rounds": options.rounds})
    rows = [say_tokens(row) for row in MEASURES[options.peer](plan)]
    print("differences: " + ", ".join(f"{name} {value:.1e}" for name, value in rows[0]["differences"].items()))
    write(f"generation-{options.peer}", "speed token by token against transformers", rows, options, memory=plan.memory)


if __name__ == "__main__":
    main()
