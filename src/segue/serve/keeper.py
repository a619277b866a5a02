"""Sessions as the server sees them, and the interface of their storage."""

import time
from typing import Protocol

from segue.infer.saved_session import Kept
from segue.serve.errors import ApiError, shown
from segue.serve.store import Record


class Session:
    """A session."""

    def __init__(self, id: str, tenant: str, model: str, *, created: float, idle: float = 0.0) -> None:
        self.id, self.tenant, self.model, self.created = id, tenant, model, created
        self.kept: Kept | None = None
        """Its state; None: it is not in memory."""
        self.changed = True
        """True if the stored state is out of date."""
        self.tokens = 0
        self.size = 0
        self.busy = False
        self.deleted = False
        self.version = 0
        """Number of times that it has been replaced; for sessions that servers share."""
        self.lease = ""
        """Name under which a request of this server holds the session; for sessions that servers share."""
        self.elsewhere = "disk"
        """Where the state is stored when it is not in memory."""
        self.used = time.monotonic() - idle

    def body(self) -> dict[str, object]:
        """Return the session as clients see it."""
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
        """Return the record of the session in the store."""
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
    """Return the error for a session that does not exist or belongs to another tenant."""
    return ApiError(
        404,
        f"the session does not exist; got {shown(id)}. List your sessions, or create one: POST /v1/sessions.",
        code="session_not_found",
    )


def no_place(after: str) -> ApiError:
    """Return the error for a list that should continue after a session that is not in it."""
    return ApiError(
        400,
        f"after must be a session in the list; got {shown(after)}, which is not. Begin again without it.",
        code="invalid_value",
        param="after",
    )


def unavailable() -> ApiError:
    """Return the error for a store that does not respond."""
    return ApiError(
        503,
        "the session store does not respond. Try again later.",
        code="store_unavailable",
        retry_after=5.0,
    )


def in_use() -> ApiError:
    """Return the error for a session that another request is using."""
    return ApiError(
        409,
        "a session must be used by one request at a time; got a second one. Wait for the first, or fork the session.",
        code="session_busy",
    )


class SessionKeeper(Protocol):
    """Interface of session storage: `Sessions` on this machine, or `SharedSessions` in Redis."""

    memory: int
    """Size in bytes of the states in memory."""
    evictions: int
    restores: int
    failed_saves: int

    def __len__(self) -> int:
        """Return the number of sessions."""

    def in_memory(self) -> int:
        """Return the number of sessions in memory."""

    async def start(self) -> None:
        """Open the storage, before any other call."""

    async def stop(self) -> None:
        """Close the storage, and save all states."""

    async def create(self, tenant: str, model: str, kept: Kept | None = None) -> Session:
        """Create a session with the state `kept`; None: an empty one."""

    async def get(self, tenant: str, id: str) -> Session:
        """Return the session if it belongs to the tenant; otherwise raise the error for one that does not exist."""

    async def page(self, tenant: str, *, after: str | None, limit: int) -> tuple[list[Session], bool]:
        """Return up to `limit` sessions of a tenant, the oldest first, and True if there are more."""

    async def delete(self, session: Session) -> None:
        """Delete a session at once; a request that uses it continues, and its result is discarded."""

    async def take(self, session: Session) -> Kept:
        """Return the state of a session and reserve the session until `give`."""

    async def give(self, session: Session, kept: Kept | None = None) -> None:
        """End the use of a session; `kept` is its new state, None: the state is unchanged. Raise an error if the state
        cannot be stored: the session is then as it was."""

    async def fork(self, session: Session) -> Session:
        """Create a session with the same state."""

    async def check_room(self, session: Session) -> None:
        """Raise an error if the tenant has no room for the session to grow."""

    async def state(self, session: Session) -> bytes:
        """Return the state of a session as signed bytes."""

    async def restore(self, session: Session, data: bytes) -> None:
        """Replace the state of a session with one that `state` returned."""

    def largest_state(self, model: str) -> int:
        """Return the maximum size of a state in bytes."""
