"""From your text to a language model that writes.

    python examples/pretrain.py [TEXT.txt] [--steps 300]

Without a file, segue's English sample is used. After 300 updates the model knows words and a little grammar.
"""

import argparse
from pathlib import Path
from tempfile import mkdtemp

import segue

parser = argparse.ArgumentParser()
parser.add_argument("text", nargs="?", type=Path, help="A text file. Default: segue's English sample.")
parser.add_argument("--steps", type=int, default=300, help="Optimizer updates. Default: 300.")
options = parser.parse_args()

folder = Path(mkdtemp())
text = options.text or segue.sample("english", folder / "english.txt")
store = segue.prepare(text, folder / "store", vocabulary_size=2000)

settings = {"train.steps": options.steps, "train.warmup_steps": min(30, options.steps // 2)}
run = segue.pretrain("small-transformer-xl", folder / "run", store=store, settings=settings)
print(f"{run.step} updates, loss {run.metrics()[-1]['loss']:.2f}; the run is in {run.folder}")

print(segue.generate(run.folder, "The ", max_tokens=40))
