"""What a session is to the server, and what routes ask of whoever keeps them."""

import time
from typing import Protocol

from segue.infer.saved_session import Kept
from segue.serve.errors import ApiError, shown
from segue.serve.store import Record


class Session:
    """One of them."""

    def __init__(self, id: str, tenant: str, model: str, *, created: float, idle: float = 0.0) -> None:
        self.id, self.tenant, self.model, self.created = id, tenant, model, created
        self.kept: Kept | None = None
        """What it has read; None: that is on disk alone."""
        self.changed = True
        """Whether what is on disk is not what it has read."""
        self.tokens = 0
        self.size = 0
        self.busy = False
        self.deleted = False
        self.version = 0
        """How often it has been replaced; where servers share sessions."""
        self.lease = ""
        """By what name a server holds it; where servers share sessions."""
        self.elsewhere = "disk"
        """Where it is when it is not in memory."""
        self.used = time.monotonic() - idle

    def body(self) -> dict[str, object]:
        """As a client sees it."""
        return {
            "id": self.id,
            "object": "session",
            "model": self.model,
            "created": int(self.created),
            "tokens": self.tokens,
            "bytes": self.size,
            "waiting": "" if self.kept is None else self.kept.text.text[self.kept.text.read :],
            "place": self.elsewhere if self.kept is None else "memory",
            "busy": self.busy,
        }

    def record(self, kept: Kept) -> Record:
        """As the store has it."""
        return Record(
            id=self.id,
            tenant=self.tenant,
            model=self.model,
            tokens=kept.tokens,
            size=kept.size,
            created=self.created,
            idle=max(0.0, time.monotonic() - self.used),
        )


def no_session(id: str) -> ApiError:
    """There is none, or it is another tenant's."""
    return ApiError(
        404,
        f"the session does not exist; got {shown(id)}. List your sessions, or create one: POST /v1/sessions.",
        code="session_not_found",
    )


def no_place(after: str) -> ApiError:
    """A list cannot go on after a session that is not in it."""
    return ApiError(
        400,
        f"after must be a session in the list; got {shown(after)}, which is not. Begin again without it.",
        code="invalid_value",
        param="after",
    )


def unavailable() -> ApiError:
    """The store does not answer."""
    return ApiError(
        503,
        "the session store does not respond. Try again later.",
        code="store_unavailable",
        retry_after=5.0,
    )


def in_use() -> ApiError:
    """Another request uses it."""
    return ApiError(
        409,
        "a session must be used by one request at a time; got a second one. Wait for the first, or fork the session.",
        code="session_busy",
    )


class SessionKeeper(Protocol):
    """What routes ask of the sessions, wherever they are kept: `Sessions` on this machine, or `SharedSessions`."""

    memory: int
    """Bytes of what is in memory."""
    evictions: int
    restores: int
    failed_saves: int

    def __len__(self) -> int:
        """How many there are."""

    def in_memory(self) -> int:
        """How many are in memory."""

    async def start(self) -> None:
        """Before anything else."""

    async def stop(self) -> None:
        """Keeps all that has been read."""

    async def create(self, tenant: str, model: str, kept: Kept | None = None) -> Session:
        """A session that has read what was `kept`; None: nothing."""

    async def get(self, tenant: str, id: str) -> Session:
        """The session, if it is the tenant's own; another tenant's is none."""

    async def page(self, tenant: str, *, after: str | None, limit: int) -> tuple[list[Session], bool]:
        """Some of a tenant, the first that was created first; and whether there are more."""

    async def delete(self, session: Session) -> None:
        """It is gone at once; a request that uses it goes on to its end, for nothing."""

    async def take(self, session: Session) -> Kept:
        """What it has read. Nobody else uses it until `give`."""

    async def give(self, session: Session, kept: Kept | None = None) -> None:
        """The request has ended; `kept` is what has been read now, None: nothing has changed. Raises where that cannot
        be kept: the session is then as it was."""

    async def fork(self, session: Session) -> Session:
        """Another session that has read the same."""

    async def check_room(self, session: Session) -> None:
        """Refuses to let a session grow beyond what its tenant may have."""

    async def state(self, session: Session) -> bytes:
        """What it has read as signed bytes."""

    async def restore(self, session: Session, data: bytes) -> None:
        """Puts what `state` gave in the place of what the session has read."""

    def largest_state(self, model: str) -> int:
        """Bytes that a state can have at most."""
