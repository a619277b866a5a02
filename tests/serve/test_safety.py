"""What strangers send: names, sizes, depths, bytes, slow sockets, keys. Nothing of it reaches a file or the engine."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.running import Server, running
from tests.serve.test_text import ENDLESS, TEXT, events, new_session

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
NAMES = [
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%252e%252e%252fetc%252fpasswd",
    "..\\..\\windows\\win.ini",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:1/x",
    "xl\x00",
    "a" * 4096,
    "xl/../xl",
]
TEXTS = [
    "\x00",
    "\x1b[31mred\x1b[0m",
    "\u202eabc",
    "e" + "\u0301" * 20_000,
    "Z̸̢̛̛͓͕a̶l̷g̵o",
    "\u2581\u2581",
    "<sep><mask><cls><eod>",
    "<script>alert(1)</script>",
    "🎵中文",
    "\r\n\r\n",
]


@pytest.fixture(scope="module")
def audited(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that has keys and small limits, and writes down what it opens."""
    folder = tmp_path_factory.mktemp("audited")
    keys = folder / "keys"
    keys.write_text(f"# tenants\nalice {ALICE}\nbob {BOB}\n")
    log = folder / "opened"
    limits = ["max_sessions=3", "max_body=100000", "max_feed=400000", "max_n=4", "max_stop=2", "max_logprobs=3"]
    limits += ["max_tokens=50", "max_echo_tokens=100", "max_prompt_tokens=1000", "max_inputs=3", "body_timeout=2.0"]
    limits += ["max_logit_bias=400", "max_stop_characters=20", "header_timeout=3.0", "write_timeout=2.0"]
    options = [word for limit in limits for word in ("--set", limit)]
    with running(
        list(folders.values()), folder, "--keys", str(keys), *options, program=("tests.serve.audited", str(log))
    ) as server:
        yield server, log


@pytest.fixture
def alice(audited: tuple[Server, Path]) -> Iterator[httpx.Client]:
    with audited[0].client(ALICE) as client:
        yield client
        for session in client.get("/v1/sessions").json()["data"]:
            client.delete(f"/v1/sessions/{session['id']}")


def refused(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert response.status_code in (statuses or (400,)), response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].isprintable()
    return error


# ------------------------------------------------------------------------------------------------------- names, urls


def test_no_name_of_a_request_is_opened(audited: tuple[Server, Path], alice: httpx.Client) -> None:
    for name in NAMES:
        refused(alice.post("/v1/completions", json={"model": name, "prompt": "a"}), 404)
        refused(alice.post("/v1/sessions", json={"model": name}), 404)
        refused(alice.post("/tokenize", json={"model": name, "prompt": "http://127.0.0.1:1/"}), 404)
        refused(alice.post("/v1/completions", json={"model": "xl", "prompt": "a", "session": name}), 404)
        if "\x00" not in name and name != "xl/../xl":  # which httpx itself makes "xl" of
            for path in (f"/v1/models/{name}", f"/v1/sessions/{name}", f"/v1/sessions/{name}/state", f"/{name}"):
                assert alice.get(path).status_code in (400, 404, 405)
    alice.post("/v1/completions", json={"model": "xl", "prompt": "http://127.0.0.1:1/x file:///etc/passwd"})
    opened = audited[1].read_text()
    assert "passwd" not in opened
    assert "win.ini" not in opened
    assert "connect" not in opened
    assert "getaddrinfo" not in opened
    names = [line for line in opened.splitlines() if line.startswith("open ") and "/serve/" not in line]
    assert not [line for line in names if "sqlite" not in line and ".py" not in line], names


# --------------------------------------------------------------------------------------------------- sizes and depths


def test_large_bodies_are_refused_without_being_kept(server: Server) -> None:
    with server.client() as client:
        client.get("/health")
        before = server.resident()

        def parts() -> Iterator[bytes]:
            for _ in range(100):
                yield b" " * 1_000_000

        for content in (parts(), b" " * 100_000_000):
            try:
                answer = client.post("/v1/completions", content=content, headers={"content-type": "application/json"})
                refused(answer, 413)
            except httpx.WriteError:  # the server has answered and closed while this was still sending
                pass
        assert server.resident() - before < 20_000_000
    with server.client() as client:
        assert client.get("/health").status_code == 200


def test_large_headers_are_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        answer = b""
        try:
            for _ in range(300):
                raw.sendall(b"a" * 100_000)
            answer = raw.recv(1000)
        except OSError:
            answer = b"HTTP/1.1 400"
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))


@pytest.mark.parametrize("count", [100, 10_000, 45_000])
def test_deep_json_is_refused(count: int, alice: httpx.Client) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        if count * len(opening + closing) >= 100_000:
            continue
        inner = "1" if opening != "[" else ""
        body = f'{{"model": "xl", "prompt": {opening * count}{inner}{closing * count}}}'
        headers = {"content-type": "application/json"}
        refused(alice.post("/v1/completions", content=body.encode(), headers=headers), 400)


def test_limits_hold_before_the_engine(alice: httpx.Client) -> None:
    wrong: list[dict[str, Any]] = [
        {"n": 5},
        {"n": 2, "prompt": ["a", "b", "c"]},
        {"n": 0},
        {"max_tokens": 51},
        {"max_tokens": -1},
        {"max_tokens": 0},
        {"max_tokens": 10**30},
        {"max_tokens": "5"},
        {"max_tokens": True},
        {"logprobs": 4},
        {"stop": ["a", "b", "c"]},
        {"stop": ["a" * 21]},
        {"stop": [""]},
        {"choices": ["a" * 21]},
        {"prompt": "a" * 9000},
        {"prompt": "abcdefg " * 300},
        {"prompt": [1] * 1001},
        {"prompt": [10**9]},
        {"prompt": [-1]},
        {"prompt": {"a": 1}},
        {"temperature": -1},
        {"temperature": "hot"},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": 0},
        {"logit_bias": {"x": 1}},
        {"logit_bias": {"999999": 1}},
        {"logit_bias": {str(number): 1 for number in range(401)}},
        {"seed": 2**70},
        {"best_of": 3},
        {"presence_penalty": 1.0},
        {"suffix": "b"},
        {"nonsense": 1},
        {"session": 5},
        {"echo": True, "logprobs": 1, "prompt": "abcdefg " * 100},
    ]
    for one in wrong:
        error = refused(alice.post("/v1/completions", json={"model": "xl", "prompt": "a", **one}))
        assert error["type"] == "invalid_request_error"
    text = {"content-type": "application/json"}
    for raw in (b"", b"{", b"[]", b"null", b'{"model": NaN}', b"\xff\xfe", b'{"a": 1' + b"0" * 5000 + b"}"):
        refused(alice.post("/v1/completions", content=raw, headers=text))
    refused(alice.post("/v1/completions", content=b'{"model": "xl"}', headers={"content-type": "text/plain"}), 400, 415)
    id = new_session(alice, text="The room")
    refused(alice.post(f"/v1/sessions/{id}/feed", content=b"a" * 400_001), 413)
    refused(alice.post(f"/v1/sessions/{id}/score", json={"text": "abcdefg " * 100}))
    refused(alice.post(f"/v1/sessions/{id}/write", json={"max_tokens": 51}))
    new_session(alice), new_session(alice)
    refused(alice.post("/v1/sessions", json={"model": "xl"}), 429)
    refused(alice.post(f"/v1/sessions/{id}/fork"), 429)
    refused(alice.post("/v1/embeddings", json={"model": "xl", "input": ["a"] * 4}))
    refused(alice.put(f"/v1/sessions/{id}/state", content=b"a" * 30_000_000), 400, 413)
    assert alice.get("/load").json()["requests"] == 0


def test_the_bytes_of_a_tenant_are_limited(folders: dict[str, Path], tmp_path: Path) -> None:
    with (
        running([folders["xl"]], tmp_path, "--set", "max_session_bytes=60000") as server,
        server.client() as client,
    ):
        new_session(client, text=TEXT * 20)
        id = new_session(client, text=TEXT * 20)
        for _ in range(3):
            answer = client.post(f"/v1/sessions/{id}/fork")
            if answer.status_code != 201:
                break
        assert refused(answer, 429)["code"] == "too_many_bytes"
        assert answer.headers["retry-after"]
        assert client.delete(f"/v1/sessions/{id}").status_code == 200
        new_session(client, text=TEXT)


# ----------------------------------------------------------------------------------------------------- text of any kind


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_text(text: str, alice: httpx.Client) -> None:
    answer = alice.post("/v1/completions", json={"model": "xl", "prompt": text[:300], "max_tokens": 2})
    assert answer.status_code == 200, answer.text
    id = new_session(alice)
    fed = alice.post(f"/v1/sessions/{id}/feed", content=text.encode()).raise_for_status().json()
    assert fed["characters"] == len(text)
    text = text[:3000]  # the ids come back in a request, which has a limit
    found = alice.post("/tokenize", json={"model": "xl", "prompt": text}).raise_for_status().json()
    assert not any(piece in ("<eod>", "<cls>", "<mask>", "<pad>") for piece in found["pieces"])
    assert alice.post("/detokenize", json={"model": "xl", "tokens": found["tokens"]}).json()["prompt"] == text


def test_bytes_that_are_no_text_are_refused(alice: httpx.Client) -> None:
    id = new_session(alice, text="The room")
    before = alice.get(f"/v1/sessions/{id}").json()
    for wrong in (b"\xff", b"ok \xc3", b"\xed\xa0\x80", b"good " * 30_000 + b"\x80"):
        refused(alice.post(f"/v1/sessions/{id}/feed", content=wrong))
    headers = {"content-type": "application/json"}
    refused(alice.post("/tokenize", content=b'{"model": "xl", "prompt": "\\ud800"}', headers=headers))
    refused(alice.post("/tokenize", content=b'{"model": "xl", "prompt": "\xff"}', headers=headers))
    assert alice.get(f"/v1/sessions/{id}").json() == before


def test_a_text_in_any_pieces_is_one_text(alice: httpx.Client) -> None:
    text = "房间很干净 🎵 The room was clean é " * 50
    data = text.encode()
    whole = new_session(alice)
    alice.post(f"/v1/sessions/{whole}/feed", content=data).raise_for_status()
    cut = new_session(alice)
    alice.post(f"/v1/sessions/{cut}/feed", content=(data[n : n + 7] for n in range(0, len(data), 7))).raise_for_status()
    first, second = (alice.get(f"/v1/sessions/{id}").json() for id in (whole, cut))
    assert first["tokens"] == second["tokens"]
    scores = [alice.post(f"/v1/sessions/{id}/score", json={"text": "ab"}).json()["logprob"] for id in (whole, cut)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_a_character_of_several_tokens_comes_whole(alice: httpx.Client) -> None:
    """Tokens that are bytes of a character: a stream never shows a part of one."""
    wanted = "🎵中"
    body = {"model": "xl", "prompt": "The ", "max_tokens": 20, "choices": [wanted], "stream": True}
    with alice.stream("POST", "/v1/completions", json=body) as response:
        parts = [choice["text"] for one in events(response) for choice in one["choices"]]
    assert "".join(parts) == wanted
    assert not any("\ufffd" in part for part in parts)
    assert len(parts) > len(wanted)  # there were more tokens than characters


@pytest.mark.long
def test_a_megabyte_of_combining_marks_is_text(server: Server) -> None:
    text = "e" + "\u0301" * 500_000
    with server.client() as client:
        id = new_session(client)
        fed = client.post(f"/v1/sessions/{id}/feed", content=text.encode()).raise_for_status().json()
        assert fed["characters"] == len(text)
        assert client.get("/health").status_code == 200


def test_log_lines_are_escaped(audited: tuple[Server, Path], alice: httpx.Client) -> None:
    alice.post("/v1/completions", json={"model": "x\n2026 ERROR forged\x1b[31m", "prompt": "a"})
    alice.get("/v1/models/x%0a2026%20ERROR%20forged")
    log = audited[0].log.read_text()
    assert "\x1b" not in log
    assert "\n2026 ERROR" not in log


# ------------------------------------------------------------------------------------------------- keys and tenants


def test_every_route_needs_a_key(audited: tuple[Server, Path]) -> None:
    server, _ = audited
    with server.client(ALICE) as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert len(paths) > 25
    for key in (None, "wrong-0123456789abcdef", ALICE[:-1], "x", f"{ALICE[:-1]}é"):
        headers = {} if key is None else {"authorization": f"Bearer {key}".encode()}
        with httpx.Client(base_url=server.url, trust_env=False, verify=False) as client:
            for path, methods in paths.items():
                for method in methods:
                    answer = client.request(method, path.replace("{id}", "x").replace("{name}", "x"), headers=headers)
                    if path in ("/health", "/ready"):
                        assert answer.status_code == 200
                    else:
                        assert refused(answer, 401)["code"] == "invalid_api_key"
            for path in ("/metrics", "/load", "/page", "/nothing"):
                refused(client.get(path, headers=headers), 401)
            for path in ("/", "/page/main.js", "/docs", "/openapi.json"):  # the same on every server
                assert client.get(path, headers=headers).status_code == 200
            assert client.post("/", headers=headers).status_code == 405
            refused(client.get("/page/nothing", headers=headers), 404)


def test_a_session_of_another_tenant_is_none(audited: tuple[Server, Path], alice: httpx.Client) -> None:
    id = new_session(alice, text="The room was clean. ")
    state = alice.get(f"/v1/sessions/{id}/state").content
    with audited[0].client(BOB) as bob:
        asked = [
            bob.get(f"/v1/sessions/{id}"),
            bob.delete(f"/v1/sessions/{id}"),
            bob.post(f"/v1/sessions/{id}/feed", content=b"mine"),
            bob.post(f"/v1/sessions/{id}/write", json={}),
            bob.post(f"/v1/sessions/{id}/score", json={"text": "a"}),
            bob.post(f"/v1/sessions/{id}/fork"),
            bob.get(f"/v1/sessions/{id}/state"),
            bob.put(f"/v1/sessions/{id}/state", content=state),
            bob.post("/v1/completions", json={"model": "xl", "prompt": "a", "session": id}),
        ]
        none = refused(bob.get("/v1/sessions/sess-00000000000000000000000000000000"), 404)
        for answer in asked:
            error = refused(answer, 404)
            assert (error["type"], error["code"]) == (none["type"], none["code"])
        assert bob.get("/v1/sessions").json()["data"] == []
    assert alice.get(f"/v1/sessions/{id}").json()["tokens"] > 3


def test_without_keys_other_sites_and_names_are_refused(server: Server) -> None:
    with server.client() as client:
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}):
            refused(client.get("/v1/models", headers=headers), 403)
        assert client.get("/v1/models", headers={"origin": server.url}).status_code == 200
        assert client.get("/v1/models", headers={"host": "localhost:1"}).status_code == 200


# ----------------------------------------------------------------------------------------------------- slow clients


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.long)])
def test_slow_senders_are_let_go_and_nobody_waits_for_them(
    count: int, audited: tuple[Server, Path], alice: httpx.Client
) -> None:
    server, _ = audited
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    half = (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ALICE}\r\n"
        "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    ).encode()

    def five() -> float:
        started = time.monotonic()
        for _ in range(5):
            alice.post("/v1/completions", json={"model": "xl", "prompt": "a", "max_tokens": 5}).raise_for_status()
        return time.monotonic() - started

    alone = five()
    waiting = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    for number, raw in enumerate(waiting):
        raw.sendall(b"GET /v1/mod" if number % 2 else half)
    assert five() < 2.0 + 5 * alone  # on a quiet machine, they would be let go only later
    for number, raw in enumerate(waiting):
        raw.settimeout(10)
        answer = raw.recv(1000)
        assert answer == b"" if number % 2 else answer.startswith(b"HTTP/1.1 408")
        raw.close()


def test_a_client_that_does_not_read_is_let_go(folders: dict[str, Path], tmp_path: Path) -> None:
    options = ("--set", "write_timeout=0.5", "--set", "max_tokens=200000", "--set", "max_logprobs=500")
    with running([folders["xl"]], tmp_path, *options) as server, server.client() as client:
        id = new_session(client, text=TEXT)
        body = json.dumps({"max_tokens": 200_000, "logprobs": 200, "seed": 1, "logit_bias": ENDLESS}).encode()
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", server.port))
        head = f"POST /v1/sessions/{id}/write HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        end = time.monotonic() + 60
        while client.get("/load").json()["requests"] == 0 and time.monotonic() < end:
            time.sleep(0.05)
        while client.get("/load").json()["requests"] and time.monotonic() < end:
            time.sleep(0.2)
        assert client.get("/load").json()["requests"] == 0
        assert client.get(f"/v1/sessions/{id}").json()["busy"] is False
        raw.close()


def test_a_client_that_leaves_stops_what_it_asked_for(client: httpx.Client, server: Server) -> None:
    body = {"model": "xl", "prompt": TEXT, "max_tokens": 4000, "stream": True, "logit_bias": ENDLESS}
    for count in (0, 1, 5):
        with server.client() as other, other.stream("POST", "/v1/completions", json=body) as response:
            found = events(response)
            for _ in range(count):
                next(found)
        end = time.monotonic() + 10
        while (load := client.get("/load").json())["requests"] + load["writing"] and time.monotonic() < end:
            time.sleep(0.01)
        assert (load["requests"], load["writing"]) == (0, 0)
        time.sleep(0.05)
        assert client.get("/load").json()["tokens_written"] <= load["tokens_written"] + 1  # the step it was in
