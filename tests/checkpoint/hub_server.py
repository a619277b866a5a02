"""A hub in a thread: as much of its HTTP interface as huggingface_hub asks for to download and to upload models."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Hub:
    """Models by name, each with commits; and what goes wrong, by the beginning of a path."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.refs: dict[str, dict[str, str]] = {}
        self.private: dict[str, bool] = {}
        self.broken: list[tuple[str, int | str]] = []
        """A pattern of paths, and a status, or `short` for a body that ends early, `redirect` for another address."""
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.url = ""

    def add(self, name: str, files: dict[str, bytes], *, ref: str = "main") -> str:
        listing = json.dumps([name, {path: hashlib.sha1(data).hexdigest() for path, data in files.items()}])
        commit = hashlib.sha1(listing.encode()).hexdigest()
        self.commits.setdefault(name, {})[commit] = files
        self.refs.setdefault(name, {})[ref] = commit
        return commit

    def files(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = self.refs.get(name, {}).get(revision, revision)
        files = self.commits.get(name, {}).get(commit)
        return None if files is None else (commit, files)


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self._begin()
            if path is None:
                return
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
                self._about(match[1], match[2] or "main")
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
                self._tree(match[1], match[2])
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._file(match[1], match[2], match[3])
            else:
                self._answer(404, {"error": f"no {path}"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self._begin()
            if path is None:
                return
            if path == "/api/repos/create":
                wanted = json.loads(body)
                name = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
                hub.private[name] = wanted.get("private", False) or wanted.get("visibility") == "private"
                if name in hub.commits:
                    self._answer(409, {"error": "exists", "url": f"{hub.url}/{name}"})
                    return
                hub.add(name, {})
                self._answer(200, {"url": f"{hub.url}/{name}", "name": name})
            elif path == "/api/validate-yaml":
                self._answer(200, {"errors": [], "warnings": []})
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/branch/(.+)", path):
                hub.refs[match[1]].setdefault(match[2], hub.refs[match[1]]["main"])
                self._answer(200, {})
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/(.+)", path):
                files = [file["path"] for file in json.loads(body)["files"]]
                modes = [{"path": file, "uploadMode": "regular", "shouldIgnore": False} for file in files]
                self._answer(200, {"files": modes})
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/(.+)", path):
                self._commit(match[1], match[2], [json.loads(line) for line in body.splitlines()])
            else:
                self._answer(404, {"error": f"no {path}"})

        def _begin(self) -> str | None:
            """The path, unless it is one that is broken."""
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            self.short = False
            for pattern, kind in hub.broken:
                if re.search(pattern, path):
                    if isinstance(kind, int):
                        self._answer(kind, {"error": f"status {kind}"})
                        return None
                    if kind == "redirect" and "moved" not in self.path:
                        self._answer(307, None, {"Location": f"{self.path}?moved=1"})
                        return None
                    self.short = kind == "short"
            return path

        def _about(self, name: str, revision: str) -> None:
            found = hub.files(name, revision)
            if name not in hub.commits:
                self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            elif found is None:
                self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
            else:
                siblings = [{"rfilename": path} for path in found[1]]
                self._answer(200, {"id": name, "modelId": name, "sha": found[0], "siblings": siblings})

        def _tree(self, name: str, revision: str) -> None:
            found = hub.files(name, revision)
            if found is None:
                self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
                return
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in found[1].items()
            ]
            self._answer(200, entries)

        def _file(self, name: str, revision: str, path: str) -> None:
            found = hub.files(name, revision)
            if found is None or path not in found[1]:
                self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
                return
            data, start = found[1][path], 0
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": found[0]}
            if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
                start = int(match[1])
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._send(206 if start else 200, data[start:], "application/octet-stream", headers)

        def _commit(self, name: str, revision: str, lines: list[dict[str, Any]]) -> None:
            found = hub.files(name, revision)
            assert found is not None
            files = dict(found[1])
            for line in lines:
                if line["key"] == "header":
                    hub.messages.append(line["value"]["summary"])
                else:
                    assert line["key"] == "file", line
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = hub.add(name, files, ref=revision)
            url = f"{hub.url}/{name}/commit/{commit}"
            self._answer(200, {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

        def _answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
            self._send(status, json.dumps(content).encode(), "application/json", headers or {})

        def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            if self.short:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if self.short else body)

    return Handler
