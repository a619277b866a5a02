"""Sessions in Redis, as seen by one of the servers that share them.

In: requests to any of the servers. Out: the state of a session, the same for all of them. A request holds a lease on
its session; requests to the session through other servers get 409 meanwhile. The new state is written to Redis before
the request is answered, so that the next one may go to any server. It is written only if the lease still holds and the
session has not changed since it was read: otherwise the request fails, and nothing is overwritten. Recent states are
cached in memory with their versions: a cached state is used only if Redis still has that version.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping

from segue.infer.saved_session import Kept
from segue.serve.errors import ApiError, shown
from segue.serve.keeper import Session, in_use, no_session
from segue.serve.models import Served
from segue.serve.redis_store import RedisStore, Shared
from segue.serve.settings import ServeSettings
from segue.serve.states import States, signed, verified

log = logging.getLogger("segue.serve")
_TICK = 1.0


class SharedSessions:
    """Sessions of a Redis database."""

    def __init__(self, models: Mapping[str, Served], store: RedisStore, settings: ServeSettings) -> None:
        self._states, self._store, self._settings = States(models), store, settings
        self._owner = secrets.token_hex(16)
        self._cache: OrderedDict[str, tuple[int, Kept]] = OrderedDict()
        """By session id: a version and the state at that version, the last used at the end."""
        self._leased: dict[str, str] = {}
        """Session ids by the leases that requests of this server hold."""
        self._secret = b""
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self.memory = 0
        self.evictions = 0
        self.restores = 0
        self.failed_saves = 0

    async def start(self) -> None:
        self._secret = await self._store.open()
        self._count = await self._store.count()
        self._task = asyncio.create_task(self._look_after())

    async def stop(self) -> None:
        """Close the storage; all states have been written already."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for lease, id in list(self._leased.items()):
            await self._release(id, lease)
        await self._store.close()

    # --------------------------------------------------------------------------------------------------- for requests

    def __len__(self) -> int:
        """Return the number of sessions in Redis at the last check."""
        return self._count

    def in_memory(self) -> int:
        return len(self._cache)

    async def create(self, tenant: str, model: str, kept: Kept | None = None) -> Session:
        kept = self._states.empty(model) if kept is None else kept
        limits = self._settings
        shared = await self._store.create(
            f"sess-{secrets.token_hex(16)}",
            tenant,
            model,
            tokens=kept.tokens,
            size=kept.size,
            data=await asyncio.to_thread(self._states.packed, model, kept),
            most=limits.max_sessions,
            most_bytes=limits.max_session_bytes,
        )
        self._remember(shared.id, shared.version, kept)
        return self._session(shared)

    async def get(self, tenant: str, id: str) -> Session:
        shared = await self._store.find(id)
        if shared is None or shared.tenant != tenant:
            raise no_session(id)
        return self._session(shared)

    async def page(self, tenant: str, *, after: str | None, limit: int) -> tuple[list[Session], bool]:
        found, has_more = await self._store.page(tenant, after=after, limit=limit)
        return [self._session(shared) for shared in found], has_more

    async def delete(self, session: Session) -> None:
        self._forget(session.id)
        await self._store.delete(session.id)

    async def take(self, session: Session) -> Kept:
        lease = f"{self._owner}:{secrets.token_hex(8)}"
        if not await self._store.lease(session.id, lease, self._settings.lease):
            raise in_use()
        self._leased[lease] = session.id
        try:
            shared = await self._store.find(session.id)  # it may have changed before the lease
            if shared is None or shared.tenant != session.tenant:
                raise no_session(session.id)
            kept = await self._load(shared)
            session.version, session.busy, session.lease = shared.version, True, lease
            session.tokens, session.size, session.kept = shared.tokens, shared.size, kept
        except BaseException:
            await self._release(session.id, lease)
            raise
        return kept

    async def give(self, session: Session, kept: Kept | None = None) -> None:
        session.busy = False
        try:
            if kept is not None:
                await self._replace(session, kept)
        finally:
            await self._release(session.id, session.lease)

    async def fork(self, session: Session) -> Session:
        kept = await self.take(session)
        try:
            return await self.create(session.tenant, session.model, kept)
        finally:
            await self.give(session)

    async def check_room(self, session: Session) -> None:
        most = self._settings.max_session_bytes
        if await self._store.bytes_of(session.tenant) + session.size > most:
            raise ApiError(
                429,
                f"the sessions of a tenant must have at most {most:,} bytes; got more. Delete some, or start the "
                "server with --set max_session_bytes=...",
                code="too_many_bytes",
                retry_after=60.0,
            )

    async def state(self, session: Session) -> bytes:
        kept = await self.take(session)
        try:
            data = await asyncio.to_thread(self._states.packed, session.model, kept)
        finally:
            await self.give(session)
        return signed(self._secret, data)

    async def restore(self, session: Session, data: bytes) -> None:
        found = verified(self._secret, data)
        await self.take(session)
        kept = None
        try:
            kept = await asyncio.to_thread(self._states.unpacked, session.model, found)
        finally:
            await self.give(session, kept)

    def largest_state(self, model: str) -> int:
        return self._states.largest(model)

    # ------------------------------------------------------------------------------------------------------ internals

    def _session(self, shared: Shared) -> Session:
        session = Session(shared.id, shared.tenant, shared.model, created=shared.created)
        session.elsewhere, session.changed = "redis", False
        session.tokens, session.size, session.version, session.busy = (
            shared.tokens,
            shared.size,
            shared.version,
            shared.busy,
        )
        version, kept = self._cache.get(shared.id, (None, None))
        session.kept = kept if version == shared.version else None
        return session

    async def _load(self, shared: Shared) -> Kept:
        version, kept = self._cache.get(shared.id, (None, None))
        if kept is not None and version == shared.version:
            self._cache.move_to_end(shared.id)
            return kept
        data = await self._store.read(shared.id, limit=self._states.largest(shared.model))
        if data is None:
            raise no_session(shared.id)
        kept = await asyncio.to_thread(self._states.unpacked, shared.model, data)
        self.restores += 1
        self._remember(shared.id, shared.version, kept)
        return kept

    async def _replace(self, session: Session, kept: Kept) -> None:
        """Write the new state, or raise ApiError: the session is then as it was."""
        try:
            replaced = await self._store.replace(
                session.id,
                owner=session.lease,
                version=session.version,
                tokens=kept.tokens,
                size=kept.size,
                data=await asyncio.to_thread(self._states.packed, session.model, kept),
            )
        except ApiError as error:
            self.failed_saves += 1
            self._forget(session.id)  # it is unknown whether Redis has it: read it again
            log.warning("a session cannot be saved: %s", shown(str(error.__cause__ or error)))
            raise
        if not replaced:
            self.failed_saves += 1
            self._forget(session.id)
            log.warning("a session was not saved: it was deleted, or its lease was lost")
            raise ApiError(
                409,
                "a session must be used by one server at a time; this one lost it to another, or it was deleted. "
                "Nothing of this request was kept: send it again.",
                code="session_lost",
            )
        session.version += 1
        session.tokens, session.size, session.kept = kept.tokens, kept.size, kept
        self._remember(session.id, session.version, kept)

    async def _release(self, id: str, lease: str) -> None:
        if self._leased.pop(lease, None) is not None:
            try:
                await self._store.release(id, lease)
            except ApiError as error:  # the lease expires by itself
                log.warning("a lease cannot be given back: %s", shown(str(error.__cause__ or error)))

    def _remember(self, id: str, version: int, kept: Kept) -> None:
        self._forget(id)
        self._cache[id] = version, kept
        self.memory += kept.size
        while self.memory > self._settings.session_memory and len(self._cache) > 1:
            self._forget(next(iter(self._cache)))
            self.evictions += 1

    def _forget(self, id: str) -> None:
        found = self._cache.pop(id, None)
        if found is not None:
            self.memory -= found[1].size

    async def _look_after(self) -> None:
        """Renew leases, and delete sessions that have not been used for a long time."""
        swept = renewed = time.monotonic()
        while True:
            await asyncio.sleep(min(_TICK, self._settings.lease / 4))
            now = time.monotonic()
            try:
                if now - renewed >= self._settings.lease / 4:
                    renewed = now
                    leases = list(self._leased.items())
                    await asyncio.gather(*(self._store.renew(id, own, self._settings.lease) for own, id in leases))
                if now - swept >= _TICK:
                    swept = now
                    await self._store.sweep(self._settings.session_lifetime)
                    self._count = await self._store.count()
            except ApiError:
                continue  # requests report it themselves
            except Exception:
                log.exception("sessions cannot be looked after")
