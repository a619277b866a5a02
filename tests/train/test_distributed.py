"""Two processes equal one: the same losses and the same weights, and a run may go on with another number of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[2]


def run(count: int, name: str, last: Path, stop: int) -> list[float]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, *launcher, "-m", "tests.train.processes", name, str(last), str(stop)]
        if not launcher
        else [sys.executable, *launcher, str(ROOT / "tests/train/processes.py"), name, str(last), str(stop)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    line = next(line for line in result.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


@pytest.mark.parametrize("name", ["transformer-xl-wt103", "bert-memory"])
def test_two_processes_equal_one_and_may_change(name: str, tmp_path) -> None:
    """Adaptive bins (weights without gradient in one process) and unequal numbers of targets are divided right."""
    one = run(1, name, tmp_path / "one", 6)
    two = run(2, name, tmp_path / "two", 4)
    then = run(1, name, tmp_path / "two", 6)
    assert [*two, *then] == pytest.approx(one, abs=1e-9)
    a, b = (load_file(tmp_path / folder / "model.safetensors") for folder in ("one", "two"))
    for key, value in a.items():
        assert abs(value - b[key]).max() < 1e-8, key
