"""Sentence embeddings and nearest neighbours.

    python examples/search.py MODEL QUERY [LINES.txt]

MODEL is any pretrained model: a packaged name, a run, or a folder.
"""

import sys
from pathlib import Path

import segue

LINES = [
    "The room was clean and quiet.",
    "Breakfast was cold and the coffee was weak.",
    "The staff helped us with our bags.",
    "It is five minutes on foot to the station.",
    "The bathroom smelled and the carpet was old.",
]

model, query = segue.load(sys.argv[1]), sys.argv[2]
lines = Path(sys.argv[3]).read_text(encoding="utf-8").splitlines() if len(sys.argv) > 3 else LINES

vectors = segue.embed(model, lines)  # rows of length 1, so a dot product is a cosine
similarity = vectors @ segue.embed(model, [query])[0]
for place in similarity.argsort()[::-1][:3]:
    print(f"{similarity[place]:.3f}  {lines[place]}")
