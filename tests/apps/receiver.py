"""A server that takes webhooks: checks the signature, remembers the ids, and now and then refuses."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from segue.apps.webhooks import is_signed


class Receiver:
    """Runs in a thread, as long as it is entered."""

    def __init__(self, secret: str) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        """By id, in the order in which they came first."""
        self.deliveries = 0
        self.unsigned = 0
        self.refuse = 0
        """How many of the next deliveries are answered with 503, after they were taken."""
        self.repeats_differ = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(body, self.headers)
                refused = receiver.refuse > 0
                receiver.refuse -= refused
                self.send_response(503 if refused else 204)
                self.end_headers()

            def log_message(self, *given: Any) -> None:
                pass

        self._secret = secret
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def take(self, body: bytes, headers: Any) -> None:
        self.deliveries += 1
        if not is_signed(self._secret, body, headers["x-segue-signature"], now=time.time()):
            self.unsigned += 1
            return
        event, id = json.loads(body), headers["x-segue-event"]
        if event["id"] != id or self.events.get(id, event) != event:
            self.repeats_differ = True
        self.events.setdefault(id, event)

    def of(self, conversation: str) -> list[str]:
        """Names of the events of a conversation, in their order."""
        return [one["event"] for one in self.events.values() if one["conversation"] == conversation]

    def wait_for(self, conversation: str, names: list[str]) -> None:
        end = time.monotonic() + 20
        while self.of(conversation) != names:
            assert time.monotonic() < end, self.of(conversation)
            time.sleep(0.02)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
