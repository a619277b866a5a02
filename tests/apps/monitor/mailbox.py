"""A mail server that keeps what it is sent: as much of SMTP as a client needs."""

import socketserver
import threading
from types import TracebackType
from typing import Any, Self


class Mailbox:
    """Runs in a thread, as long as it is entered."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.refuse = 0
        """How many of the next mails are answered with 451, after they were read."""
        box = self

        class Handler(socketserver.StreamRequestHandler):
            def say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

            def handle(self) -> None:
                self.say("220 mailbox")
                while line := self.rfile.readline():
                    verb = line[:4].upper()
                    if verb == b"DATA":
                        self.say("354 go on")
                        self.take()
                    elif verb == b"QUIT":
                        self.say("221 bye")
                        return
                    else:
                        self.say("250 ok")

            def take(self) -> None:
                lines = []
                while (line := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(line.decode())
                if box.refuse > 0:
                    box.refuse -= 1
                    self.say("451 later")
                else:
                    box.mails.append("".join(lines))
                    self.say("250 taken")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> Any:
        self._server.shutdown()
        self._server.server_close()
