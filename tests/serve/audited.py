"""`segue serve` in a process that writes down every file that it opens and every host that it calls, once it serves.

python -m tests.serve.audited LOG ARGUMENTS...
"""

import os
import sys


def main() -> None:
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    begun = False

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if begun and event in ("open", "socket.connect", "socket.getaddrinfo", "os.listdir", "subprocess.Popen"):
            os.write(log, f"{event} {arguments!r}\n".encode(errors="replace"))

    sys.addaudithook(note)
    import segue.serve.server as server

    original = server.serve

    def serve(*given: object, started: object, **options: object) -> None:
        def begin() -> None:
            nonlocal begun
            started()  # type: ignore[operator]
            begun = True

        original(*given, started=begin, **options)  # type: ignore[arg-type]

    server.serve = serve  # type: ignore[assignment]
    sys.argv = ["segue", *sys.argv[2:]]
    from segue.cli import main as command

    command()


if __name__ == "__main__":
    main()
