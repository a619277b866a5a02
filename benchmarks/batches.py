"""What does it cost to build a permutation batch, compared with the training step that reads it?

    .venv/bin/python -m benchmarks.batches

8 lanes of 512 tokens, half of them backwards, 85 predicted slots, pairs, a vocabulary of 32,000 (XLNet-base). Batches
and steps are measured in turn in one process. A step is forward, backward and Adam with memory, on 4 layers of base
width; that of the 12 layers of XLNet-base is taken as three times that, which also counts embedding and softmax three
times, so the share for the 4 layers, an upper bound, is printed too. Batches are built by one core (torch may use more
for the mask), a step uses as many as torch does.
"""

import json
import statistics
import time
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.provenance import origin, record
from segue.config import DataConfig
from segue.data.batches import Batches
from segue.model import LanguageModel
from segue.model.named import xlnet

VOCABULARY, TOKENS, LAYERS, BASE_LAYERS, ROUNDS, BATCHES = 32_000, 2_000_000, 4, 12, 3, 20


class RandomText:
    """Tokens in memory: 60 % of them begin a word, lines have 25 tokens on average."""

    specials: Mapping[str, int] = {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6, "eod": 7}
    length, vocabulary_size = TOKENS, VOCABULARY

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self._ids = generator.integers(9, VOCABULARY, size=TOKENS).astype(np.uint16)
        self._starts: NDArray[np.bool_] = generator.random(VOCABULARY) < 0.6
        self.document_starts = np.zeros(1, dtype=np.uint64)
        self.line_starts = np.flatnonzero(generator.random(TOKENS) < 1 / 25).astype(np.uint64)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        return self._ids[start:stop].astype(np.int64)

    def word_starts(self) -> NDArray[np.bool_]:
        return self._starts


def main() -> None:
    started = origin()
    config = xlnet(vocabulary_size=VOCABULARY, num_layers=LAYERS, width=768, num_heads=12, inner_width=3072)
    data = DataConfig(store="", lanes=8, segment_length=512, backward_lanes=True)
    batches = Batches(RandomText(), data, config, seed=0)
    torch.manual_seed(0)
    model = LanguageModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch_ms: list[float] = []
    step_ms: list[float] = []
    memory = None
    for number in range(ROUNDS + 1):  # the first round is a warm-up
        made = []
        for _ in range(BATCHES):
            began = time.perf_counter()
            batch = next(batches)
            made.append((time.perf_counter() - began) * 1000)
        began = time.perf_counter()
        result = model(batch, memory)
        assert result.loss is not None
        memory = result.memory
        optimizer.zero_grad()
        result.loss.backward()
        optimizer.step()
        if number:
            batch_ms += made
            step_ms.append((time.perf_counter() - began) * 1000)
    batch_time, step_time = statistics.median(batch_ms), statistics.median(step_ms)
    report = {
        "question": "share of a training step that making its permutation batch costs",
        "rows": data.lanes,
        "length": data.segment_length,
        "slots": int(batch.predicted_BP.shape[1]) if batch.predicted_BP is not None else 0,
        "vocabulary": VOCABULARY,
        "batch_ms": round(batch_time, 3),
        "batch_ms_slowest_of": [round(max(batch_ms), 3), len(batch_ms)],
        "step_ms_4_layers": [round(value, 1) for value in step_ms],
        "step_ms_base_estimated": round(step_time * BASE_LAYERS / LAYERS, 1),
        "share_of_base_step": round(batch_time / (step_time * BASE_LAYERS / LAYERS), 6),
        "share_of_4_layer_step": round(batch_time / step_time, 6),
    }
    record("batches", report, origin=started)
    print(json.dumps(report, indent=2))
    print(f"a batch takes {batch_time:.2f} ms, {report['share_of_base_step']:.3%} of a step")


if __name__ == "__main__":
    main()
