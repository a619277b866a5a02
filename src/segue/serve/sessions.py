"""Sessions of all tenants on this machine, in memory and on disk.

In: requests, on the event loop. Out: the state of a session, an immutable value (`Kept`). A request takes the state,
and replaces it when it has ended without error; nothing else changes a session. A session is used by one request at a
time; a fork is another session with the same state, at no cost.

A changed session is written to disk shortly after its last use. If sessions take too much memory, those idle longest
are kept on disk only, and loaded again when they are used. Times are those of the monotonic clock.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from segue.errors import DataError
from segue.infer.saved_session import Kept
from segue.serve.errors import ApiError, shown
from segue.serve.keeper import Session, in_use, no_place, no_session, unavailable
from segue.serve.models import Served
from segue.serve.settings import ServeSettings
from segue.serve.states import States, signed, verified
from segue.serve.store import Record, Store, StoreThread

log = logging.getLogger("segue.serve")
_TICK = 0.25
_ROOM = 0.9
"""Share of the memory for sessions that is in use after an eviction."""


class Sessions:
    """All sessions on this machine."""

    def __init__(self, models: Mapping[str, Served], store: Store, settings: ServeSettings) -> None:
        self._states, self._settings = States(models), settings
        self._store = StoreThread(store)
        self._all: dict[str, Session] = {}
        self._of: dict[str, dict[str, Session]] = {}
        self._bytes: Counter[str] = Counter()
        self._secret = b""
        self._refusal = ""
        """Why the store refused a session."""
        self._task: asyncio.Task[None] | None = None
        self._evicting = asyncio.Lock()
        self.memory = 0
        """Size in bytes of the states in memory; what forks share is counted for each."""
        self.evictions = 0
        self.restores = 0
        self.failed_saves = 0
        self.failing = False
        """True if the store refused a changed session; until it accepts one, or none is left to save."""

    async def start(self) -> None:
        """Read the records of all sessions, and start the background task."""
        for record in await self._store.run(self._store.store.open):
            session = Session(record.id, record.tenant, record.model, created=record.created, idle=record.idle)
            session.tokens, session.size = record.tokens, record.size
            session.changed = False
            self._add(session)
        self._secret = await self._store.run(self._store.store.secret)
        self._task = asyncio.create_task(self._look_after())

    async def stop(self) -> None:
        """Write all changed sessions to disk. Raise DataError if a persistent store does not accept all of them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        unsaved = sum([not await self._save(session) for session in list(self._all.values())])
        await self._store.close()
        if unsaved and self._store.store.lasting:
            raise DataError(
                f"all sessions must be saved when the server stops; {unsaved:,} of {len(self._all):,} could not be "
                f"({self._refusal}), and what they read since they were last saved is lost. Free some space, or name "
                "another file with --sessions."
            )

    # --------------------------------------------------------------------------------------------------- for requests

    def __len__(self) -> int:
        return len(self._all)

    def in_memory(self) -> int:
        return sum(session.kept is not None for session in self._all.values())

    async def create(self, tenant: str, model: str, kept: Kept | None = None) -> Session:
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
        self._set(session, self._states.empty(model) if kept is None else kept)
        await self._evict()
        return session

    async def get(self, tenant: str, id: str) -> Session:
        session = self._of.get(tenant, {}).get(id)
        if session is None or session.deleted:
            raise no_session(id)
        return session

    def of(self, tenant: str) -> list[Session]:
        """Return all sessions of a tenant, the oldest first."""
        return list(self._of.get(tenant, {}).values())

    async def page(self, tenant: str, *, after: str | None, limit: int) -> tuple[list[Session], bool]:
        found = self.of(tenant)
        start = 0
        if after is not None:
            places = [place for place, session in enumerate(found) if session.id == after]
            if not places:
                raise no_place(after)
            start = places[0] + 1
        return found[start : start + limit], start + limit < len(found)

    async def delete(self, session: Session) -> None:
        session.deleted = True
        try:
            await self._store.run(partial(self._store.store.delete, [session.id]))
        except Exception as error:
            session.deleted = False
            log.warning("a session cannot be deleted: %s", shown(str(error)))
            raise unavailable() from None
        self._forget(session)

    async def take(self, session: Session) -> Kept:
        if session.busy:
            raise in_use()
        session.busy = True
        try:
            return await self._load(session)
        except BaseException:
            session.busy = False
            raise

    async def give(self, session: Session, kept: Kept | None = None) -> None:
        session.busy = False
        session.used = time.monotonic()
        if kept is not None and not session.deleted:
            self._set(session, kept)
            session.changed = True
            await self._evict()

    async def fork(self, session: Session) -> Session:
        kept = await self.take(session)
        try:
            return await self.create(session.tenant, session.model, kept)
        finally:
            session.busy = False

    async def check_room(self, session: Session) -> None:
        self._check_room(session.tenant, session.size)

    # ------------------------------------------------------------------------------------------------ portable states

    async def state(self, session: Session) -> bytes:
        kept = await self.take(session)
        try:
            data = await self._store.run(partial(self._states.packed, session.model, kept))
        finally:
            await self.give(session)
        return signed(self._secret, data)

    async def restore(self, session: Session, data: bytes) -> None:
        found = verified(self._secret, data)
        await self.take(session)
        kept = None
        try:
            kept = await self._store.run(partial(self._states.unpacked, session.model, found))
        finally:
            await self.give(session, kept)

    def largest_state(self, model: str) -> int:
        return self._states.largest(model)

    # ------------------------------------------------------------------------------------------------ memory and disk

    async def _load(self, session: Session) -> Kept:
        if session.kept is not None:
            return session.kept
        try:
            data = await self._store.run(partial(self._store.store.get, session.id))
        except Exception as error:
            log.warning("a session cannot be read: %s", shown(str(error)))
            raise unavailable() from None
        if data is None:
            raise ApiError(404, "the session no longer exists.", code="session_not_found")
        kept = await self._store.run(partial(self._states.unpacked, session.model, data))
        self.restores += 1
        self._set(session, kept)
        session.changed = False
        return kept

    def _set(self, session: Session, kept: Kept) -> None:
        self.memory += kept.size - (0 if session.kept is None else session.kept.size)
        self._bytes[session.tenant] += kept.size - session.size
        session.kept, session.tokens, session.size = kept, kept.tokens, kept.size

    async def _save(self, session: Session) -> bool:
        """Write a session to disk if it has changed; return True if the stored state is up to date."""
        kept = session.kept
        if kept is None or not session.changed:
            return True
        record = session.record(kept)
        try:
            data = await self._store.run(partial(self._states.packed, session.model, kept))
            saved = await self._store.run(partial(self._put, session, record, data))
        except Exception as error:
            self.failed_saves += 1
            if not self.failing:
                log.warning("a session cannot be saved: %s", shown(str(error)))
            self.failing, self._refusal = True, str(error)
            return False
        self.failing = False
        if saved and session.kept is kept:
            session.changed = False
        return saved

    def _put(self, session: Session, record: Record, data: bytes) -> bool:
        """Write a session, in the thread of the store; return False if it was deleted meanwhile."""
        if session.deleted:
            return False
        self._store.store.put(record, data)
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
                with suppress(ApiError):  # tried again at the next tick
                    await self.delete(session)
            elif session.changed and session.kept is not None and now - session.used > self._settings.save_after:
                await self._save(session)
        if not any(session.changed for session in self._all.values()):
            self.failing = False
        await self._evict()

    async def _evict(self) -> None:
        """If sessions take too much memory, move those idle longest to disk. Requests wait for it: they cannot fill the
        memory faster than the disk accepts it."""
        most = self._settings.session_memory
        if self.memory <= most:
            return
        async with self._evicting:
            if self.memory <= most:  # another request has made room
                return
            for session in sorted(self._all.values(), key=lambda session: session.used):
                if self.memory <= _ROOM * most:
                    return
                kept = session.kept
                if session.busy or kept is None:
                    continue
                saved = await self._save(session)
                if saved and session.kept is kept and not session.busy and not session.changed:
                    self.memory -= kept.size
                    session.kept = None
                    self.evictions += 1
                elif self.failing:
                    return

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
        if self.failing and (self._store.store.lasting or self.memory > limits.session_memory):
            raise ApiError(
                507,
                "the store of sessions must take them; it refuses them now, and what is read would be lost. Delete "
                "sessions, or free disk space on the server.",
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
