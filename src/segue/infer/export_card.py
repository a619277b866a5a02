"""The card of an export, `README.md`: the computation, the inputs and outputs, and a working example.

In: the content of `export.json`. Out: Markdown.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def make_export_card(description: Mapping[str, Any]) -> str:
    """Return the card of an export, in Markdown."""
    step, onnx = description["what"] == "step", description["file"].endswith(".onnx")
    form = f"ONNX, opset {description['opset']}" if onnx else f"a program of torch.export, torch {description['torch']}"
    sections = [
        f"# {'A step of a stream' if step else 'An encoder'}: {form}",
        _STEP if step else _ENCODER,
        _notes(description),
        "## In\n\n" + _table(description["inputs"]),
        "## Out\n\n" + _table(description["outputs"]),
        "## Example\n\n```python\n" + _example(description, step=step, onnx=onnx) + "```",
        "" if onnx else _TRUST,
        f"Compared with the model on random input: the largest difference was {description['largest_difference']:.1e}.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _notes(description: Mapping[str, Any]) -> str:
    notes = []
    if description["tokenizer"]:
        notes.append("`tokenizer/` makes ids of text: `segue.text.files.load_tokenizer`.")
    if description["begin"] is not None:
        notes.append(f"A text begins with the token {description['begin']}, the end of another document.")
    if description["longest"] is not None:
        notes.append(f"The model has {description['longest']} learned positions, so no row can be longer.")
    if description["head_left_out"]:
        kind = description["head_left_out"].replace("_", " ")
        notes.append(f"The model has a head, a {kind}, that is not part of this program: it ends before the head.")
    return " ".join(notes)


def _table(tensors: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        f"| `{one['name']}` | {one['dtype']} | {', '.join(map(str, one['shape']))} | {one['about']} |"
        for one in tensors
    ]
    return "\n".join(["| name | type | shape | what it is |", "|---|---|---|---|", *rows])


def _example(description: Mapping[str, Any], *, step: bool, onnx: bool) -> str:
    size, begin = description["vocabulary_size"], description["begin"]
    ids = [number % size for number in (3, 1, 4)]
    if not step:
        return (_ENCODER_ONNX if onnx else _ENCODER_TORCH).format(ids=ids)
    if description["longest"] is not None:
        ids = ids[: max(0, description["longest"] - 2)]
    ids = [*([] if begin is None else [begin]), *ids] or [0]
    rows = description["inputs"][0]["shape"][0]
    return (_STEP_ONNX if onnx else _STEP_TORCH).format(ids=ids, rows=rows)


_ENCODER = """The states of the last layer for a batch of texts, each read on its own. Padding never changes the state
of a token. Rows and length may differ from call to call."""

_STEP = """Reads one token of each row and says what may follow. The memory is an input and an output of fixed shape:
the oldest position drops out, the new one comes last. Nothing else is kept, so a copy of the state is a copy of the
stream. `initial.npz` holds the state of rows that have read nothing; a row starts anew when its part of that is put
back."""

_TRUST = """`torch.export.load` may unpickle parts of a file, which can run any code. Load files of your own only."""

_ENCODER_ONNX = """import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
ids = np.array([{ids}], dtype=np.int64)
real = np.ones(ids.shape, dtype=bool)
(hidden,) = session.run(None, {{"ids": ids, "real": real}})
print(hidden.shape)
"""

_ENCODER_TORCH = """import torch

program = torch.export.load("model.pt2").module()
ids = torch.tensor([{ids}])
hidden = program(ids, torch.ones_like(ids, dtype=torch.bool))
print(hidden.shape)
"""

_STEP_ONNX = """import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
state = dict(np.load("initial.npz"))
for token in {ids}:
    ids = np.full(({rows}, 1), token, dtype=np.int64)
    log_probability, *after = session.run(None, {{"ids": ids, **state}})
    state = dict(zip(["key", "value", "valid", "position"], after))
print(log_probability[0].argmax(), log_probability[0].max())
"""

_STEP_TORCH = """import numpy as np
import torch

program = torch.export.load("model.pt2").module()
initial = np.load("initial.npz")
state = [torch.from_numpy(initial[name]) for name in ("key", "value", "valid", "position")]
for token in {ids}:
    log_probability, *state = program(torch.full(({rows}, 1), token), *state)
print(log_probability[0].argmax(), log_probability[0].max())
"""
