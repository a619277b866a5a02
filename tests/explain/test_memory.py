"""What an explanation of a long text takes of memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from segue.data.samples import samples
from segue.infer.text_model import load_text_model

MODEL, TOKENS, MOST = "xlnet-mini-en", 4096, 2 * 2**30


@pytest.mark.long
def test_four_thousand_tokens_take_less_than_two_gigabytes(tmp_path: Path) -> None:
    """Prose of the sample, 4,096 tokens in eight segments with their memory; all of the page but the ablations."""
    tokenizer = load_text_model(MODEL).tokenizer
    words = [word for document in samples()["english"].documents() for line in document for word in line.split()][:9000]
    ids = tokenizer.encode(" ".join(words))[: TOKENS - 1]  # and the mark that begins a document
    (tmp_path / "text.txt").write_text(tokenizer.decode(ids), encoding="utf-8")
    command = [sys.executable, "-m", "segue", "explain", MODEL, str(tmp_path / "text.txt"), "--no-ablations"]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "page.html")])
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    peak = usage.ru_maxrss * 1024
    print(f"{len(ids) + 1:,} tokens: {peak / 2**30:.2f} GB, {(tmp_path / 'page.html').stat().st_size / 2**20:.1f} MB")
    assert peak < MOST
