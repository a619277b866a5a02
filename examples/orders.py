"""XLNet predicts in any order: one sentence, several factorisation orders, and a gap filled from both sides.

    python examples/orders.py MODEL ["A sentence."]

MODEL is an XLNet: a packaged name, a run, or a folder.
"""

import sys

import segue

model = segue.load(sys.argv[1])
sentence = sys.argv[2] if len(sys.argv) > 2 else "The room was clean and the staff were kind."

for order, seed in [("forward", 0), ("backward", 0), ("random", 1), ("random", 2)]:
    (score,) = segue.score(model, sentence, order=order, seed=seed)
    print(f"{order:8} (seed {seed})  log-probability {score.log_probability:9.3f}")

first, _, rest = sentence.partition(" ")
word, _, rest = rest.partition(" ")
print(segue.infill(model, f"{first} ___ {rest}", length=1).text)
