"""Models with shapes alone: what every loading begins with."""

import subprocess
import sys

import pytest
import torch

from segue.model import LanguageModel
from segue.model.build import shapes_only
from tests.tiny import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_shapes_are_those_of_the_model_and_nothing_is_drawn(name: str) -> None:
    before = torch.random.get_rng_state()
    with shapes_only():
        shapes = LanguageModel(MODELS[name])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(parameter.is_meta for parameter in shapes.parameters())
    whole = LanguageModel(MODELS[name]).state_dict()
    assert {key: value.shape for key, value in shapes.state_dict().items()} == {k: v.shape for k, v in whole.items()}


def test_shapes_need_no_compiler() -> None:
    """Every command that loads a model builds its shapes first: that must not import what takes seconds."""
    code = (
        "import sys\n"
        "from segue.model import LanguageModel\n"
        "from segue.model.build import shapes_only\n"
        "from segue.model.named import named\n"
        "with shapes_only():\n"
        "    model = LanguageModel(named('xlnet-base'))\n"
        "assert all(parameter.is_meta for parameter in model.parameters())\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
