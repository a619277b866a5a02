"""A session reads an endless text, and its size does not grow.

    python examples/stream.py MODEL

MODEL is a causal model: a packaged name, a run, or a folder.
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import segue

session = segue.open(sys.argv[1])
file = Path(mkdtemp()) / "session.safetensors"

for chapter in range(1, 4):
    session.feed(f"Chapter {chapter}. " + "The room was clean and the staff were kind. " * 50)
    session.save(file)
    print(f"{session.tokens_read:,} tokens read; the session takes {file.stat().st_size:,} bytes")

# A fork has read the same text and then continues independently; both are as cheap as one.
other = session.fork()
for name, reader, words in [("one", session, " The film was"), ("other", other, " The food was")]:
    reader.feed(words)
    print(f"{name}:{words}", "".join(reader.stream(max_tokens=12)))

# A restored session continues exactly where the saved one stopped.
restored = segue.open(sys.argv[1])
restored.load(file)
print(f"restored at token {restored.tokens_read:,}")
