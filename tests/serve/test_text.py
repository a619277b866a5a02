"""Completions and sessions over HTTP give what a Session gives, whoever else is there."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from segue.infer.sampling import SamplingSettings
from segue.infer.session import Session, open_session
from tests.serve.running import Server

TOLERANCE = 1e-4
ENDLESS = {"7": -100}
"""A bias against the end of a document, whose id is that of tests.tasks.models."""
TEXT = "The room was clean and the staff were very kind to us. "


@pytest.fixture(scope="module")
def alone(folders: dict[str, Path]) -> dict[str, Session]:
    return {name: open_session(folder) for name, folder in folders.items()}


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Events of a stream, without the mark at its end."""
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


def new_session(client: httpx.Client, model: str = "xl", text: str = "") -> str:
    id: str = client.post("/v1/sessions", json={"model": model}).raise_for_status().json()["id"]
    if text:
        client.post(f"/v1/sessions/{id}/feed", content=text.encode()).raise_for_status()
    return id


def written_by(session: Session, prompt: str, *, max_tokens: int, seed: int) -> list[tuple[int | None, float]]:
    sampling = SamplingSettings(seed=seed, top_k=None)
    found = session.write(prompt, max_tokens=max_tokens, sampling=sampling)
    return [(one.id, one.log_probability) for one in found if one.id is not None]


@pytest.mark.parametrize("model", ["xl", "xlnet"])
def test_a_completion_is_what_a_session_writes(model: str, client: httpx.Client, alone: dict[str, Session]) -> None:
    expected = written_by(alone[model].fork(), TEXT, max_tokens=12, seed=5)
    body = {"model": model, "prompt": TEXT, "max_tokens": 12, "seed": 5, "logprobs": 0}
    choice = client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]
    tokens = [alone[model].tokenizer.token(index) for index, _ in expected if index is not None]
    assert choice["logprobs"]["tokens"] == tokens
    for got, (_, value) in zip(choice["logprobs"]["token_logprobs"], expected, strict=True):
        assert got == pytest.approx(value, abs=TOLERANCE)
    assert choice["finish_reason"] in ("length", "stop")


def test_a_stream_is_the_answer_in_parts(client: httpx.Client) -> None:
    body = {"model": "xl", "prompt": TEXT, "max_tokens": 24, "seed": 3, "n": 3, "echo": True, "logprobs": 2}
    whole = client.post("/v1/completions", json=body).raise_for_status().json()
    texts = ["", "", ""]
    reasons: list[str | None] = [None] * 3
    logprobs: list[list[float]] = [[], [], []]
    with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
        for chunk in events(response):
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["text"]
                reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
                logprobs[choice["index"]] += (choice["logprobs"] or {}).get("token_logprobs", [])
    for number, choice in enumerate(whole["choices"]):
        assert texts[number] == choice["text"]
        assert reasons[number] == choice["finish_reason"]
        assert logprobs[number] == pytest.approx(choice["logprobs"]["token_logprobs"], abs=TOLERANCE)
    assert len({choice["text"] for choice in whole["choices"]}) == 3  # each text has a seed of its own


def test_an_echoed_prompt_is_scored_as_a_session_scores_it(client: httpx.Client, alone: dict[str, Session]) -> None:
    expected = alone["xl"].fork().score(TEXT)
    body = {"model": "xl", "prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": 1}
    choice = client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]
    assert choice["text"] == TEXT
    assert choice["logprobs"]["tokens"] == [one.token for one in expected.tokens]
    values = [one.log_probability for one in expected.tokens]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(values, abs=TOLERANCE)
    assert choice["logprobs"]["text_offset"] == [one.start for one in expected.tokens]


def test_ids_are_read_as_they_are(client: httpx.Client, alone: dict[str, Session]) -> None:
    session = alone["xl"].fork()
    ids = session.tokenizer.encode(TEXT).tolist()
    session.feed_tokens(ids)
    expected = written_by(session, "", max_tokens=6, seed=1)
    body = {"model": "xl", "prompt": ids, "max_tokens": 6, "seed": 1, "logprobs": 0}
    choice = client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]
    values = [value for _, value in expected]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(values, abs=TOLERANCE)
    echoed = client.post("/v1/completions", json=body | {"echo": True, "max_tokens": 1}).raise_for_status().json()
    assert echoed["choices"][0]["logprobs"]["token_logprobs"][0] is None  # nothing comes before the first id


def test_a_session_goes_on_where_it_was(client: httpx.Client, alone: dict[str, Session]) -> None:
    mine = alone["xl"].fork()
    id = new_session(client)
    mine.feed(TEXT * 3)
    fed = client.post(f"/v1/sessions/{id}/feed", content=(TEXT * 3).encode()).raise_for_status().json()
    assert fed["session"]["tokens"] == mine.tokens_read
    assert fed["session"]["waiting"] == mine.waiting
    for seed in (1, 2):
        expected = written_by(mine, "And then ", max_tokens=9, seed=seed)
        body = {"prompt": "And then ", "max_tokens": 9, "seed": seed, "stream": seed == 1, "logprobs": 1}
        response = client.post(f"/v1/sessions/{id}/write", json=body).raise_for_status()
        found = list(events(response))[:-1] if seed == 1 else response.json()["tokens"]
        found = [one for one in found if one["id"] is not None]
        assert [one["id"] for one in found] == [index for index, _ in expected]
        assert [one["logprob"] for one in found] == pytest.approx([value for _, value in expected], abs=TOLERANCE)
    scored = client.post(f"/v1/sessions/{id}/score", json={"text": TEXT, "keep": False}).raise_for_status().json()
    again = client.post(f"/v1/sessions/{id}/score", json={"text": TEXT}).raise_for_status().json()
    expected_score = mine.score(TEXT)
    for one in (scored, again):
        assert one["logprob"] == pytest.approx(expected_score.log_probability, abs=1e-3)
    assert client.get(f"/v1/sessions/{id}").json()["tokens"] == mine.tokens_read


def test_what_was_reused_and_read_is_counted(client: httpx.Client) -> None:
    id = new_session(client, text=TEXT)
    before = client.get(f"/v1/sessions/{id}").json()["tokens"]
    body = {"model": "xl", "prompt": TEXT, "session": id, "max_tokens": 4}
    found = client.post("/v1/completions", json=body).raise_for_status().json()
    details = found["usage"]["prompt_tokens_details"]
    assert found["session"] == id
    assert details["cached_tokens"] == before
    assert found["usage"]["prompt_tokens"] == before + details["read_tokens"] + details["skipped_tokens"]
    after = client.get(f"/v1/sessions/{id}").json()["tokens"]
    assert after == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]


def test_forks_are_independent(client: httpx.Client) -> None:
    id = new_session(client, text=TEXT)
    other = client.post(f"/v1/sessions/{id}/fork").raise_for_status().json()["id"]
    assert other != id
    body = {"max_tokens": 8, "seed": 4, "stream": False}
    first = client.post(f"/v1/sessions/{id}/write", json=body).raise_for_status().json()
    second = client.post(f"/v1/sessions/{other}/write", json=body).raise_for_status().json()
    assert [one["id"] for one in first["tokens"]] == [one["id"] for one in second["tokens"]]
    client.post(f"/v1/sessions/{id}/feed", content=TEXT.encode()).raise_for_status()
    assert client.get(f"/v1/sessions/{other}").json()["tokens"] == second["session"]["tokens"]


def test_a_state_is_taken_away_and_brought_back(client: httpx.Client) -> None:
    id = new_session(client, text=TEXT)
    state = client.get(f"/v1/sessions/{id}/state").raise_for_status().content
    body = {"max_tokens": 8, "seed": 4, "stream": False}
    first = client.post(f"/v1/sessions/{id}/write", json=body).raise_for_status().json()
    other = new_session(client)
    client.put(f"/v1/sessions/{other}/state", content=state).raise_for_status()
    second = client.post(f"/v1/sessions/{other}/write", json=body).raise_for_status().json()
    assert first["tokens"] == second["tokens"]  # to the bit
    damaged = bytearray(state)
    damaged[len(state) // 2] ^= 1
    for wrong in (bytes(damaged), state[:-1], b"", b"segue-state-1\n"):
        answer = client.put(f"/v1/sessions/{other}/state", content=wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_state")
    another = new_session(client, "xlnet")
    answer = client.put(f"/v1/sessions/{another}/state", content=state)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "state_refused")


def test_many_at_once_get_what_each_gets_alone(server: Server, alone: dict[str, Session]) -> None:
    prompts = [TEXT * (1 + number % 3) + f"Number {number} " for number in range(24)]
    expected = [
        written_by(alone["xl"].fork(), prompt, max_tokens=10 + number, seed=number)
        for number, prompt in enumerate(prompts)
    ]
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        with server.client() as client:
            body = {
                "model": "xl",
                "prompt": prompts[number],
                "max_tokens": 10 + number,
                "seed": number,
                "logprobs": 0,
            }
            found[number] = client.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    token = alone["xl"].tokenizer.token
    for number, tokens in enumerate(expected):
        assert found[number]["logprobs"]["tokens"] == [token(index) for index, _ in tokens if index is not None]
        values = [value for _, value in tokens]
        assert found[number]["logprobs"]["token_logprobs"] == pytest.approx(values, abs=TOLERANCE)


def test_the_openai_client_works_unchanged(server: Server) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", http_client=server.client())
    assert {model.id for model in client.models.list()} == {"xl", "xlnet"}
    how = {"model": "xl", "prompt": TEXT, "max_tokens": 6, "seed": 2, "temperature": 0.8, "top_p": 0.9}
    whole = client.completions.create(**how, logprobs=2, stop=["zzz"], logit_bias={"5": -100})
    assert whole.choices[0].logprobs.token_logprobs
    parts = client.completions.create(
        **how, stop=["zzz"], logit_bias={"5": -100}, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(parts)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    with pytest.raises(openai.NotFoundError, match="model must be one of"):
        client.completions.create(model="none", prompt="a")
    with pytest.raises(openai.BadRequestError, match="max_tokens must be at most"):
        client.completions.create(model="xl", prompt="a", max_tokens=10**6)


def test_json_without_its_header_is_told_so(client: httpx.Client) -> None:
    for headers in ({"content-type": "application/x-www-form-urlencoded"}, {"content-type": "text/plain"}):
        got = client.post("/v1/completions", content=b"{}", headers=headers)
        assert got.status_code == 400
        assert "content-type: application/json" in got.json()["error"]["message"]
        assert got.json()["error"]["code"] == "content_type"
