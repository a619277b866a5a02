"""What fine-tuned models and language models that do not write answer over HTTP is what the library answers."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import segue
from segue.api.explain import explain_answer, explain_text
from segue.checkpoint.folder import TOKENIZER
from segue.explain.decision import TASKS as EXPLAINED
from segue.infer.embed import embed_texts
from segue.infer.infill import infill_text
from segue.infer.score import ScoreSettings, TextScore, score_texts
from segue.infer.text_model import load_text_model
from segue.tasks.folder import load_task_model, save_task_model
from segue.tasks.predict import answers_in_order
from segue.tasks.table import TASKS
from tests.serve.running import Server, running
from tests.tasks.made import task_model
from tests.tasks.models import write_model

TOLERANCE = 1e-4
ROWS: dict[str, list[dict[str, Any]]] = {
    "classify": [
        {"text": "The room was clean", "label": "good"},
        {"text": "A dull film", "label": "bad"},
        {"text": "She was born in Paris and moved to London with her family", "label": "none"},
    ],
    "pair": [
        {"first": "Two men play", "second": "football in the park", "label": "yes"},
        {"first": "The company", "second": "said that profit rose by ten per cent", "label": "no"},
    ],
    "regress": [
        {"text": "The room was clean", "number": 1.5},
        {"text": "A dull film with a weak story", "number": 0.5},
    ],
    "tag": [
        {"text": "She was born in Paris", "tags": [{"start": 16, "end": 21, "type": "place"}]},
        {"text": "He moved to London", "tags": [{"start": 12, "end": 18, "type": "place"}]},
    ],
    "answer": [
        {
            "context": "She was born in Paris in 1906",
            "question": "Where?",
            "answer": [{"text": "Paris", "start": 16}],
        },
        {
            "context": "He wants to buy a coat",
            "question": "What does he want?",
            "answer": [{"text": "a coat", "start": 16}],
        },
    ],
    "choose": [
        {"context": "He wants a coat", "question": "What?", "options": ["a coat", "a hat"], "answer": "A"},
        {"context": "Two men play", "question": "Where?", "options": ["the park", "a room"], "answer": "A"},
    ],
    "rank": [
        {"query": "a clean room", "documents": ["The room was clean", "A dull film", "profit"], "relevance": [1, 0, 0]},
        {"query": "a film", "documents": ["The room was clean", "A dull film"], "relevance": [0, 1]},
    ],
    "similarity": [
        {"first": "The room was clean", "second": "a clean room"},
        {"first": "A dull film", "second": "The story was weak"},
    ],
    "generate": [{"source": "The room was", "target": "clean"}, {"source": "A dull", "target": "film"}],
}


@pytest.fixture(scope="module")
def task_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tasks")
    base = write_model(folder / "base")
    found = {"base": base}
    for name, rows in ROWS.items():
        settings = {"max_length": 4} if name == "generate" and "max_length" in TASKS[name].settings.model_fields else {}
        made = task_model(TASKS[name], base, rows, **settings)
        save_task_model(made, folder / name, tokenizer=base / TOKENIZER)
        found[name] = folder / name
    return found


@pytest.fixture(scope="module")
def task_server(task_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(list(task_folders.values()), tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def tasks(task_server: Server) -> Iterator[httpx.Client]:
    with task_server.client() as client:
        yield client


def without_answers(name: str) -> list[dict[str, Any]]:
    answers = {column.role for column in TASKS[name].columns if column.answer}
    return [{role: value for role, value in row.items() if role not in answers} for row in ROWS[name]]


@pytest.mark.parametrize("name", list(ROWS))
def test_a_task_answers_as_the_library_does(name: str, tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    made = load_task_model(task_folders[name])
    rows = without_answers(name)
    examples = [made.task.example(number, row, labelled=False) for number, row in enumerate(rows)]
    expected = answers_in_order(made, examples)
    answer = tasks.post(f"/v1/{name}", json={"model": name, "input": rows}).raise_for_status().json()
    assert answer["usage"]["prompt_tokens"] > 0
    assert len(answer["data"]) == len(rows)
    for found, prediction in zip(answer["data"], expected, strict=True):
        for column, value in prediction.columns.items():
            assert _near(found[column], value), column
    if name in ("classify", "pair"):
        for found, prediction in zip(answer["data"], expected, strict=True):
            assert found["probs"] == pytest.approx(list(prediction.value), abs=TOLERANCE)
            assert found["label"] == prediction.columns["prediction"]


def test_a_model_for_similarity_embeds(tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    texts = ["The room was clean", "A dull film"]
    answer = tasks.post("/v1/embeddings", json={"model": "similarity", "input": texts}).raise_for_status().json()
    expected = segue.embed(task_folders["similarity"], texts, progress=False)
    assert [one["embedding"] for one in answer["data"]] == [pytest.approx(row, abs=TOLERANCE) for row in expected]
    refused = tasks.post("/v1/likelihood", json={"model": "similarity", "input": texts})
    assert refused.status_code == 400
    assert "similarity, embeddings, tokenize" in refused.json()["error"]["message"]


# ------------------------------------------------------------------------------------------------------ explanations


def page_of(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """The values in the page that /v1/explain gives."""
    answer = client.post("/v1/explain", json=body).raise_for_status()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "sandbox allow-scripts" in answer.headers["content-security-policy"]
    found: list[dict[str, Any]] = json.loads(answer.text.partition('id="values">')[2].partition("</script>")[0])
    return found


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_words_of_an_answer_are_explained(name: str, tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    row = without_answers(name)[0]
    (page,) = page_of(tasks, model=name, input=row, seed=3)
    expected = explain_answer(task_folders[name], row, seed=3)
    assert page["name"] == name
    assert page["words"]["answer"] == expected.answer
    for found, method in zip(page["words"]["methods"], expected.attributions, strict=True):
        assert found["values"] == pytest.approx(list(method.values_N), abs=1e-3)


def test_a_text_is_explained(tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    text = "The room was clean <b>and</b> the staff were kind."
    (page,) = page_of(tasks, model="base", input=text, order="random", seed=2, ablations=True)
    expected = explain_text(task_folders["base"], text, order="random", seed=2, progress=False)
    assert page["text"] == text
    assert page["loss"] == pytest.approx(expected.loss, abs=1e-3)
    assert [one["change"] for one in page["changes"]] == pytest.approx(
        [one.change for one in expected.changes], abs=1e-3
    )
    assert "explain" in tasks.get("/v1/models/base").json()["abilities"]
    assert "explain" not in tasks.get("/v1/models/generate").json()["abilities"]


def test_what_cannot_be_explained_is_refused(tasks: httpx.Client) -> None:
    for body, message in (
        ({"model": "base", "input": "room " * 600}, "at most 512 tokens (max_explain_tokens)"),
        ({"model": "classify", "input": "room " * 600}, "at most 512 tokens (max_explain_tokens)"),
        ({"model": "base", "input": ["a", "b"]}, "must be a text for a language model"),
        ({"model": "base", "input": ""}, "must have 1 to"),
        ({"model": "generate", "input": "a"}, "model must be one for explain"),
        ({"model": "answer", "input": "a"}, "must have the columns of the task answer"),
        ({"input": "a"}, "model must be given where several can do explain"),
    ):
        answer = tasks.post("/v1/explain", json=body)
        assert answer.status_code == 400, body
        assert message in answer.json()["error"]["message"]


def test_others_are_answered_while_a_text_is_explained(tasks: httpx.Client, task_server: Server) -> None:
    """An explanation with many readings, and a text to write and one to classify meanwhile."""
    ended: dict[str, float] = {}

    def explain() -> None:
        with task_server.client() as client:
            page_of(client, model="base", input="The room was clean and the staff were kind. " * 30, ablations=True)
        ended["explanation"] = time.monotonic()

    thread = threading.Thread(target=explain)
    thread.start()
    while not tasks.get("/load").json()["requests"]:
        assert thread.is_alive()
    tasks.post("/v1/completions", json={"model": "base", "prompt": "The room", "max_tokens": 4}).raise_for_status()
    tasks.post("/v1/classify", json={"input": "A dull film"}).raise_for_status()
    ended["others"] = time.monotonic()
    thread.join()
    assert ended["others"] < ended["explanation"]


def _near(found: Any, value: Any) -> bool:
    if isinstance(value, float):
        return bool(found == pytest.approx(value, abs=TOLERANCE))
    if isinstance(value, dict):
        return all(_near(found[key], inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return len(found) == len(value) and all(_near(a, b) for a, b in zip(found, value, strict=True))
    return bool(found == value)


def test_rows_come_in_the_forms_people_write(tasks: httpx.Client) -> None:
    one = tasks.post("/classify", json={"model": "classify", "input": "The room was clean"}).raise_for_status().json()
    two = tasks.post("/v1/classify", json={"input": [{"sentence": "The room was clean"}]}).raise_for_status().json()
    assert one["data"] == two["data"]
    first = tasks.post("/v1/pair", json={"input": ["Two men play", "football"]}).raise_for_status().json()
    second = tasks.post("/v1/pair", json={"input": [{"premise": "Two men play", "hypothesis": "football"}]})
    assert first["data"] == second.raise_for_status().json()["data"]
    for wrong in ({"input": [{"nothing": "a"}]}, {"input": [["a", "b", "c"]]}, {"input": []}, {"input": ""}):
        answer = tasks.post("/v1/pair", json=wrong)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]


def test_rerank_and_score(tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    made = load_task_model(task_folders["rank"])
    row = without_answers("rank")[0]
    scores = answers_in_order(made, [made.task.example(0, row, labelled=False)])[0].value
    answer = (
        tasks.post("/rerank", json={"query": row["query"], "documents": row["documents"]}).raise_for_status().json()
    )
    order = [result["index"] for result in answer["results"]]
    assert order == np.argsort(-scores, kind="stable").tolist()
    assert answer["results"][0]["document"]["text"] == row["documents"][order[0]]
    best = tasks.post("/v1/rerank", json={"query": row["query"], "documents": row["documents"], "top_n": 1}).json()
    assert best["results"] == answer["results"][:1]
    found = tasks.post("/v1/score", json={"queries": row["query"], "documents": row["documents"]}).raise_for_status()
    assert [one["score"] for one in found.json()["data"]] == pytest.approx(list(scores), abs=TOLERANCE)


def test_many_requests_are_read_together_and_not_mixed(task_server: Server, task_folders: dict[str, Path]) -> None:
    made = load_task_model(task_folders["classify"])
    texts = [f"The room {'was clean ' * (number % 7)}{number}" for number in range(40)]
    examples = [made.task.example(number, {"text": text}, labelled=False) for number, text in enumerate(texts)]
    expected = answers_in_order(made, examples)
    found: dict[int, list[float]] = {}

    def ask(number: int) -> None:
        with task_server.client() as client:
            body = {"model": "classify", "input": texts[number]}
            found[number] = client.post("/classify", json=body).raise_for_status().json()["data"][0]["probs"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, prediction in enumerate(expected):
        assert found[number] == pytest.approx(list(prediction.value), abs=TOLERANCE)


def test_embeddings(tasks: httpx.Client, task_server: Server, task_folders: dict[str, Path]) -> None:
    source = load_text_model(task_folders["base"])
    texts = ["The room was clean", "A dull film with a weak story; I nearly fell asleep", ""]
    expected = embed_texts(source.model, source.tokenizer, texts)
    answer = tasks.post("/v1/embeddings", json={"model": "base", "input": texts}).raise_for_status().json()
    assert np.abs(np.array([one["embedding"] for one in answer["data"]]) - expected).max() < 1e-5
    packed = tasks.post("/v1/embeddings", json={"model": "base", "input": texts, "encoding_format": "base64"})
    packed = packed.raise_for_status().json()
    found = [np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in packed["data"]]
    assert np.abs(np.stack(found) - expected).max() < 1e-5
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{task_server.url}/v1", api_key="unused", http_client=task_server.client())
    vectors = [one.embedding for one in client.embeddings.create(model="base", input=texts).data]
    assert np.abs(np.array(vectors) - expected).max() < 1e-5


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_likelihood_under_any_order(order: Any, tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    source = load_text_model(task_folders["base"])
    texts = ["The room was clean", "A dull film"]
    settings = ScoreSettings(order=order, seed=3, segment_length=source.segment_length)
    expected = list(score_texts(source.model, source.tokenizer, texts, settings))
    body = {"input": texts, "order": order, "seed": 3, "tokens": True}
    answer = tasks.post("/v1/likelihood", json=body).raise_for_status().json()
    for found, one in zip(answer["data"], expected, strict=True):
        assert isinstance(one, TextScore)
        assert found["logprob"] == pytest.approx(one.log_probability, abs=TOLERANCE)
        assert found["perplexity"] == pytest.approx(one.perplexity, rel=1e-4)
        assert len(found["tokens"]) == one.tokens


def test_likelihood_under_a_given_order(tasks: httpx.Client) -> None:
    count = tasks.post("/tokenize", json={"model": "base", "prompt": "The room was clean"}).json()["count"]
    backwards = list(range(count))[::-1]
    given = tasks.post("/v1/likelihood", json={"input": "The room was clean", "order": backwards}).raise_for_status()
    named = tasks.post("/v1/likelihood", json={"input": "The room was clean", "order": "backward"}).raise_for_status()
    assert given.json()["data"][0]["logprob"] == pytest.approx(named.json()["data"][0]["logprob"], abs=TOLERANCE)
    wrong = tasks.post("/v1/likelihood", json={"input": "The room was clean", "order": [0, 0]})
    assert wrong.status_code == 400


@pytest.mark.parametrize("order", ["left_to_right", "right_to_left", "surest_first"])
def test_infilling_in_any_order(order: Any, tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    source = load_text_model(task_folders["base"])
    expected = infill_text(source.model, source.tokenizer, "The ___ was ___", lengths=[1, 2], order=order)
    body = {"text": "The ___ was ___", "length": [1, 2], "order": order, "logprobs": 2}
    answer = tasks.post("/v1/infill", json=body).raise_for_status().json()
    assert (answer["text"], answer["gaps"]) == (expected.text, list(expected.gaps))
    assert answer["logprob"] == pytest.approx(expected.result.log_probability, abs=TOLERANCE)
    assert [one["position"] for one in answer["tokens"]] == [one.position for one in expected.result.filled]
    assert tasks.post("/v1/infill", json={"text": "no gap"}).status_code == 400


def test_ids_and_back(tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    tokenizer = load_text_model(task_folders["base"]).tokenizer
    for text in ("The room was clean", "<sep> is text, 中文 too", ""):
        found = tasks.post("/tokenize", json={"model": "base", "prompt": text}).raise_for_status().json()
        assert found["tokens"] == tokenizer.encode(text).tolist()
        assert found["count"] == len(found["tokens"])
        back = tasks.post("/detokenize", json={"model": "base", "tokens": found["tokens"]}).raise_for_status().json()
        assert back == {"prompt": text}


def test_a_tokeniser_says_what_it_is(tasks: httpx.Client, task_folders: dict[str, Path]) -> None:
    tokenizer = load_text_model(task_folders["base"]).tokenizer
    found = tasks.get("/tokenizer_info?model=base").raise_for_status().json()
    assert (found["vocab_size"], found["special_tokens"]) == (tokenizer.size, dict(tokenizer.specials))
    assert "eos_token" in found


def test_figures_and_descriptions(tasks: httpx.Client) -> None:
    tasks.post("/classify", json={"model": "classify", "input": "a"}).raise_for_status()
    figures = tasks.get("/metrics").raise_for_status().text
    assert 'segue_requests_total{route="/classify",status="200"}' in figures
    assert "segue_sessions 0.0" in figures
    assert tasks.get("/load").json()["requests"] == 0
    page = tasks.get("/docs").raise_for_status()
    assert "/v1/completions" in page.text
    assert "http://" not in page.text.replace("http://127", "")
    models = {one["id"]: one for one in tasks.get("/v1/models").json()["data"]}
    assert models["classify"]["labels"] == ["bad", "good", "none"]
    assert models["classify"]["task"] == "classify"
    assert "infill" in models["base"]["abilities"]
