"""lm-evaluation-harness asks a running server through `local-completions`, unchanged, and gets the log-probabilities of
a session. It needs lm-eval with tenacity and aiohttp, in an environment of its own."""

from pathlib import Path

import pytest

from segue.infer.session import open_session
from tests.serve.running import running
from tests.tasks.models import write_model

pytest.importorskip("tenacity")
pytest.importorskip("aiohttp")
completions = pytest.importorskip("lm_eval.models.openai_completions")
PAIRS = [
    ("The room was", " clean and the staff were very kind"),
    ("A dull film", " with a weak story"),
    ("She was born", " in Paris"),
]


def test_the_harness_works_unchanged(tmp_path: Path) -> None:
    from lm_eval.api.instance import Instance

    folder = write_model(tmp_path / "xl", objective="causal")
    with running([folder], tmp_path) as server:
        model = completions.LocalCompletionsAPI(base_url=f"{server.url}/v1/completions", model="xl", max_retries=1)
        assert model.tokenizer_backend == "remote"  # it has found /tokenizer_info and /tokenize
        asked = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(PAIRS)]
        found = model.loglikelihood(asked)
        alone = open_session(folder)
        for (before, after), (value, _) in zip(PAIRS, found, strict=True):
            ids, count = alone.tokenizer.encode(before + after).tolist(), len(alone.tokenizer.encode(before))
            body = {"model": "xl", "prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}
            with server.client() as client:
                scored = client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]
            assert value == pytest.approx(sum(scored["logprobs"]["token_logprobs"][count:]), abs=1e-4)
        settings = {"until": ["\n"], "max_gen_toks": 8, "temperature": 0}
        texts = model.generate_until([Instance("generate_until", {}, ("The room was", settings), 0)])
        with server.client() as client:
            body = {"model": "xl", "prompt": alone.tokenizer.encode("The room was").tolist(), "max_tokens": 8}
            answer = client.post("/v1/completions", json=body | {"temperature": 0}).raise_for_status().json()
        assert texts == [answer["choices"][0]["text"]]
