"""Does `segue serve` keep its promises: isolated sessions, constant cost per token, many clients, overload?

    make bench-serving                                              all parts, then the page
    .venv/bin/python -m benchmarks.serving --only isolation fork    some of them
    .venv/bin/python -m benchmarks.serving --quick                  whether all of it runs; printed only

On two quiet cores all parts take about an hour: ten minutes of overload, more than a quarter of an hour of isolation,
four of long texts.

Each part has a result of its own, and a part with a result of the current code is not measured again: the benchmark can
be stopped and continued at will. The peers have environments of their own (`make .venv-llama/ready
.venv-transformers5/ready`): llama.cpp's server from the package xllamacpp, with new weights, as many as the
Transformer-XL beside it; and `transformers serve` with the same XLNet that segue serves. New weights everywhere: their
values do not change times.

What a peer cannot do: llama.cpp has no fork of a slot and no sessions beyond its slots except files that its client
names; so there is no comparison for forks and idle sessions. Its requests carry the whole text each time, and its
server finds the part that the slot has read. `transformers serve` has no sessions.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.provenance import RESULTS, newest, of_this_code, origin
from benchmarks.serving_isolation import isolation, isolation_llama
from benchmarks.serving_load import idle, overload
from benchmarks.serving_parts import Part, Row, busy, clients, first_token, fork, length, overhead
from benchmarks.serving_servers import LLAMA, TRANSFORMERS
from benchmarks.side_by_side import write

PARTS: dict[str, Part] = {
    "fork": fork,
    "overhead": overhead,
    "busy": busy,
    "first-token": first_token,
    "clients": clients,
    "idle": idle,
    "length": length,
    "isolation": isolation,
    "isolation-llama": isolation_llama,
    "overload": overload,
}
PEERS = {"clients": TRANSFORMERS, "length": LLAMA, "isolation-llama": LLAMA}


def name_of(part: str) -> str:
    """Return the name of the result of a part."""
    return f"serving-{part}"


def say(row: Row) -> None:
    goal = "" if row["goal"] is None else f" (goal: at {'most' if row['most'] else 'least'} {row['goal']:g}, "
    reached = "" if row["goal"] is None else "reached)" if row["reached"] else "missed)"
    print(f"{row['work']}: {row['figure']:.4g} {row['unit']}{goal}{reached}; {row['beside']}", flush=True)


def run(parts: Sequence[str], folder: Path, *, results: Path, quick: bool, again: bool) -> None:
    """Run the parts; `folder` is for models and logs, which parts share."""
    for part in parts:
        result = newest(results, name_of(part))
        if not again and result is not None and of_this_code(result):
            print(f"answered already by this code: {part}", flush=True)
            continue
        print(f"-- {part}", flush=True)
        options: Any = argparse.Namespace(
            rounds=1, quick=quick, results=results, started=time.monotonic(), origin=origin()
        )
        rows = PARTS[part](folder, quick=quick)
        for row in rows:
            say(row)
        write(name_of(part), (PARTS[part].__doc__ or "").strip(), rows, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, printed only: whether it runs")
    parser.add_argument("--again", action="store_true", help="also what this code has answered")
    parser.add_argument("--results", type=Path, help="folder of the JSON; benchmarks/results, or with --quick none")
    options = parser.parse_args()
    for part in options.only:
        if part in PEERS and not (PEERS[part] / "bin" / "python").exists():
            parser.error(f"{part} needs its peer in {PEERS[part].name}; got none. Run make {PEERS[part].name}/ready.")
    with TemporaryDirectory(prefix="segue-serving-") as folder:
        results = options.results or (Path(folder) / "printed" if options.quick else RESULTS)
        run(options.only, Path(folder), results=results, quick=options.quick, again=options.again or options.quick)


if __name__ == "__main__":
    main()
