"""The study `long-text` on real documents: long film reviews in place of planted evidence.

    .venv/bin/python -m benchmarks.long_reviews --data DATA --out STUDIES

DATA has imdb/*.tsv.xz. The longest 600 of its training reviews, 100 of its validation and 300 of its test reviews
are learned by four of the variants, from the same pretrained models, as in the ready study; where STUDIES has its
runs already, nothing is pretrained again. The report is STUDIES/long-reviews.html and .md.
"""

import argparse
import json
import tomllib
from pathlib import Path

import tomli_w

import segue
from benchmarks.long_documents import longest
from segue.study.load import ready_text

PARTS = {"train": ("train.first8000", 600), "valid": ("valid", 100), "test": ("test", 300)}
VARIANTS = ("memory", "gradient through memory", "chunks", "cut at 512")


def study(tables: Path) -> dict[str, object]:
    """Return the ready study with another task."""
    ready = tomllib.loads(ready_text("long-text"))
    ready["title"] = "Long text: film reviews"
    ready["question"] = "The variants of the study long-text, fine-tuned on the longest film reviews of IMDb."
    ready["limits"] = [
        "An opinion may stand anywhere in a review, often at its beginning: there is little to gain from reading on."
    ]
    task = {
        "name": "long reviews",
        **{part: str(tables / f"{part}.jsonl") for part in PARTS},
        "settings": {
            "train": {"epochs": 3, "batch_size": 8},
            "read": {"segment_length": 256, "summary": "mean", "pool": "mean"},
        },
    }
    ready["measures"]["tasks"] = [task]
    ready["variants"] = [one for one in ready["variants"] if one["name"] in VARIANTS]
    return ready


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with imdb/*.tsv.xz")
    parser.add_argument("--out", type=Path, required=True, help="folder of studies")
    arguments = parser.parse_args()
    tables = arguments.out / "long-reviews-tables"
    tables.mkdir(parents=True, exist_ok=True)
    for part, (name, count) in PARTS.items():
        rows = longest(arguments.data / "imdb" / f"{name}.tsv.xz", count)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (tables / f"{part}.jsonl").write_text(lines, encoding="utf-8")
    file = tables / "long-reviews.toml"
    file.write_text(tomli_w.dumps(study(tables)), encoding="utf-8")
    segue.run_study(file, arguments.out)


if __name__ == "__main__":
    main()
