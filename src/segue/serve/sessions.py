"""The sessions of all tenants: which there are, what each has read, what is in memory and what on disk.

In: requests, on the event loop. Out: what a session has read, a value that never changes (`Kept`). A request takes it,
and puts another one in its place when it has ended well; nothing else changes a session. One request at a time uses
one; a fork is another session with the same value, at no cost.

A session that has changed is written to disk a little after its last use. When there are too many bytes in memory,
those that were idle for longest are on disk alone, and come back when they are used. Times are those of a clock that
only goes forward.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial

from segue.errors import CheckpointError
from segue.infer.saved_session import Kept, packed, unpacked
from segue.infer.token_stream import TokenStream
from segue.serve.errors import ApiError, shown
from segue.serve.models import Served
from segue.serve.settings import ServeSettings
from segue.serve.store import Record, Store, StoreThread
from segue.text.tokenizer import Unfinished

log = logging.getLogger("segue.serve")
MAGIC = b"segue-state-1\n"
_TICK = 0.25


class Session:
    """One of them."""

    def __init__(self, id: str, tenant: str, model: str, *, created: float, idle: float = 0.0) -> None:
        self.id, self.tenant, self.model, self.created = id, tenant, model, created
        self.kept: Kept | None = None
        """What it has read; None: that is on disk alone."""
        self.stored = False
        """Whether it is on disk, perhaps as it was earlier."""
        self.changed = True
        """Whether what is on disk is not what it has read."""
        self.tokens = 0
        self.size = 0
        self.busy = False
        self.deleted = False
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
            "place": "disk" if self.kept is None else "memory",
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


class Sessions:
    """All of them."""

    def __init__(self, models: Mapping[str, Served], store: Store, settings: ServeSettings) -> None:
        self._models, self._settings = models, settings
        self._store = StoreThread(store)
        self._all: dict[str, Session] = {}
        self._of: dict[str, dict[str, Session]] = {}
        self._bytes: Counter[str] = Counter()
        self._empty: dict[str, Kept] = {}
        self._secret = b""
        self._task: asyncio.Task[None] | None = None
        self.memory = 0
        """Bytes of what is in memory; what forks share is counted for each."""
        self.evictions = 0
        self.restores = 0
        self.failed_saves = 0
        self.failing = False
        """Whether the store refused the last session."""

    async def start(self) -> None:
        """Reads which sessions there are, and begins to look after them."""
        for record in await self._store.run(self._store.store.open):
            session = Session(record.id, record.tenant, record.model, created=record.created, idle=record.idle)
            session.tokens, session.size = record.tokens, record.size
            session.stored, session.changed = True, False
            self._add(session)
        self._secret = await self._store.run(self._store.store.secret)
        self._task = asyncio.create_task(self._look_after())

    async def stop(self) -> None:
        """Writes all that is not on disk."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for session in list(self._all.values()):
            await self._save(session)
        await self._store.close()

    # ------------------------------------------------------------------------------------------- what requests want

    def __len__(self) -> int:
        return len(self._all)

    def in_memory(self) -> int:
        """How many are."""
        return sum(session.kept is not None for session in self._all.values())

    def create(self, tenant: str, model: str, kept: Kept | None = None) -> Session:
        """A session that has read what was `kept`; None: nothing."""
        own = self._of.get(tenant, {})
        limits = self._settings
        if len(own) >= limits.max_sessions:
            raise ApiError(
                429,
                f"a tenant must have at most {limits.max_sessions:,} sessions; got another one. Delete some, or start "
                "the server with --set max_sessions=...",
                code="too_many_sessions",
                retry_after=60.0,
            )
        self._check_room(tenant, 0)
        session = Session(f"sess-{secrets.token_hex(16)}", tenant, model, created=time.time())
        self._add(session)
        self._set(session, self._new(model) if kept is None else kept)
        return session

    def get(self, tenant: str, id: str) -> Session:
        """The session, if it is the tenant's own; another tenant's is none."""
        session = self._of.get(tenant, {}).get(id)
        if session is None or session.deleted:
            raise ApiError(
                404,
                f"a session must be one of yours; got {shown(id)}, which is none. List them, or create one: POST "
                "/v1/sessions.",
                code="session_not_found",
            )
        return session

    def of(self, tenant: str) -> list[Session]:
        """All of a tenant, the first that was created first."""
        return list(self._of.get(tenant, {}).values())

    def delete(self, session: Session) -> None:
        """It is gone at once; a request that uses it goes on to its end, for nothing."""
        session.deleted = True
        self._forget(session)
        if session.stored:
            asyncio.get_running_loop().create_task(self._delete_stored([session.id]))

    async def take(self, session: Session) -> Kept:
        """What it has read. Nobody else uses it until `give`."""
        if session.busy:
            raise ApiError(
                409,
                "a session must be used by one request at a time; got a second one. Wait for the first, or fork the "
                "session.",
                code="session_busy",
            )
        session.busy = True
        try:
            return await self._load(session)
        except BaseException:
            session.busy = False
            raise

    def give(self, session: Session, kept: Kept | None = None) -> None:
        """The request has ended; `kept` is what has been read now, None: nothing has changed."""
        session.busy = False
        session.used = time.monotonic()
        if kept is not None and not session.deleted:
            self._set(session, kept)
            session.changed = True

    async def fork(self, session: Session) -> Session:
        """Another session that has read the same."""
        kept = await self.take(session)
        try:
            return self.create(session.tenant, session.model, kept)
        finally:
            session.busy = False

    def check_room(self, session: Session) -> None:
        """Refuses to let a session grow beyond what its tenant may have."""
        self._check_room(session.tenant, session.size)

    # ----------------------------------------------------------------------------------------------- portable states

    async def state(self, session: Session) -> bytes:
        """What it has read as signed bytes."""
        kept = await self.take(session)
        try:
            data = await self._store.run(partial(self._packed, session.model, kept))
        finally:
            self.give(session)
        return MAGIC + hmac.digest(self._secret, data, hashlib.sha256) + data

    async def restore(self, session: Session, data: bytes) -> None:
        """Puts what `state` gave in the place of what the session has read."""
        start = len(MAGIC) + hashlib.sha256().digest_size
        signed = data[start:]
        right = hmac.compare_digest(hmac.digest(self._secret, signed, hashlib.sha256), data[len(MAGIC) : start])
        if data[: len(MAGIC)] != MAGIC or not right:
            raise ApiError(
                400,
                "a state must be as this server gave it; got other bytes, or those of another server. Take it again: "
                "GET /v1/sessions/ID/state.",
                code="bad_state",
            )
        await self.take(session)
        kept = None
        try:
            kept = await self._store.run(partial(self._unpacked, session.model, signed))
        finally:
            self.give(session, kept)

    def largest_state(self, model: str) -> int:
        """Bytes that a state can have at most."""
        stream = self._models[model].streaming()
        config, length = stream.streamer.model.config, stream.streamer.memory_length
        numbers = 2 * config.num_layers * length * config.num_heads * config.resolved_head_width + config.width
        return 8 * numbers + 64 * length + 16 * 2**20

    # -------------------------------------------------------------------------------------------------- memory and disk

    def _served(self, name: str) -> Served:
        served = self._models.get(name)
        if served is None:
            raise ApiError(
                409,
                f"a session must be of a model that is served; got one of {shown(name)}. Start the server with it, or "
                "delete the session.",
                code="model_not_served",
            )
        return served

    def _new(self, model: str) -> Kept:
        """What a session has that has read nothing."""
        if model not in self._empty:
            how = self._served(model).streaming()
            self._empty[model] = Kept.of(TokenStream(how.streamer, window=how.window), Unfinished())
        return self._empty[model]

    def _packed(self, model: str, kept: Kept) -> bytes:
        fingerprints = self._served(model).streaming().fingerprints
        return b"".join(packed(kept, model=fingerprints["model"], tokenizer=fingerprints["tokenizer"]))

    def _unpacked(self, model: str, data: bytes) -> Kept:
        served = self._served(model)
        how = served.streaming()
        try:
            return unpacked(
                "the state",
                data,
                how.streamer,
                served.tokenizer,
                fingerprints=how.fingerprints,
                window=how.window,
            )
        except CheckpointError as error:
            raise ApiError(409, str(error), code="state_refused") from None

    async def _load(self, session: Session) -> Kept:
        if session.kept is not None:
            return session.kept
        try:
            data = await self._store.run(partial(self._store.store.get, session.id))
        except Exception as error:
            log.warning("a session cannot be read: %s", shown(str(error)))
            raise ApiError(
                503,
                "the store of sessions must answer; it does not. Try again later.",
                code="store_unavailable",
                retry_after=5.0,
            ) from None
        if data is None:
            raise ApiError(404, "a session must be in the store; it is gone.", code="session_not_found")
        kept = await self._store.run(partial(self._unpacked, session.model, data))
        self.restores += 1
        self._set(session, kept)
        session.changed = False
        return kept

    def _set(self, session: Session, kept: Kept) -> None:
        self.memory += kept.size - (0 if session.kept is None else session.kept.size)
        self._bytes[session.tenant] += kept.size - session.size
        session.kept, session.tokens, session.size = kept, kept.tokens, kept.size

    async def _save(self, session: Session) -> bool:
        """Whether it is on disk now."""
        kept = session.kept
        if kept is None or not session.changed:
            return True
        record = session.record(kept)
        try:
            data = await self._store.run(partial(self._packed, session.model, kept))
            await self._store.run(partial(self._store.store.put, record, data))
        except Exception as error:
            self.failed_saves += 1
            if not self.failing:
                log.warning("a session cannot be saved: %s", shown(str(error)))
            self.failing = True
            return False
        self.failing = False
        session.stored = True
        if session.deleted:
            await self._delete_stored([session.id])
        elif session.kept is kept:
            session.changed = False
        return True

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            try:
                await self._tick()
            except Exception:
                log.exception("sessions cannot be looked after")

    async def _tick(self) -> None:
        now = time.monotonic()
        idle = [session for session in self._all.values() if not session.busy]
        for session in idle:
            if now - session.used > self._settings.session_lifetime:
                self.delete(session)
            elif session.changed and session.kept is not None and now - session.used > self._settings.save_after:
                await self._save(session)
        if self.memory > self._settings.session_memory:
            await self._evict()

    async def _evict(self) -> None:
        for session in sorted(self._all.values(), key=lambda session: session.used):
            if self.memory <= self._settings.session_memory:
                return
            kept = session.kept
            if session.busy or kept is None:
                continue
            if await self._save(session) and session.kept is kept and not session.busy and not session.changed:
                self.memory -= kept.size
                session.kept = None
                self.evictions += 1

    def _check_room(self, tenant: str, more: int) -> None:
        limits = self._settings
        if self._bytes[tenant] + more > limits.max_session_bytes:
            raise ApiError(
                429,
                f"the sessions of a tenant must have at most {limits.max_session_bytes:,} bytes; got more. Delete "
                "some, or start the server with --set max_session_bytes=...",
                code="too_many_bytes",
                retry_after=60.0,
            )
        if self.failing and self.memory > limits.session_memory:
            raise ApiError(
                507,
                "the store of sessions must have room; it refuses sessions, and there is no room in memory. Delete "
                "sessions, or make room on the disk.",
                code="store_full",
                retry_after=60.0,
            )

    def _add(self, session: Session) -> None:
        self._all[session.id] = session
        self._of.setdefault(session.tenant, {})[session.id] = session
        self._bytes[session.tenant] += session.size

    def _forget(self, session: Session) -> None:
        self._all.pop(session.id, None)
        own = self._of.get(session.tenant, {})
        if own.pop(session.id, None) is not None:
            self._bytes[session.tenant] -= session.size
        if not own:
            self._of.pop(session.tenant, None)
        if session.kept is not None:
            self.memory -= session.kept.size
            session.kept = None

    async def _delete_stored(self, ids: list[str]) -> None:
        try:
            await self._store.run(partial(self._store.store.delete, ids))
        except Exception as error:
            log.warning("a session cannot be deleted: %s", shown(str(error)))
