"""Sessions in Redis, shared by several servers.

In: the state of a session, as bytes, and its record. Out: the same, for any of the servers. Operations that must be
atomic are scripts. A server that uses a session holds a lease on it; a session is replaced only by the server with the
lease, and only if it has not changed since that server read it. Times are those of the Redis server.

    segue:meta              the format, and the key that signs states
    segue:session:ID        tenant, model, tokens, size, created, version, state
    segue:lease:ID          the server that uses the session
    segue:sessions:TENANT   ids, by creation time
    segue:bytes:TENANT      the total size of the tenant's sessions
    segue:used              all ids, by the time of last use
"""

import importlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from segue.errors import CheckpointError, ConfigError
from segue.serve.errors import ApiError
from segue.serve.keeper import no_place, unavailable

FORMAT = b"segue-sessions-redis-1"
SCHEMES = ("redis://", "rediss://", "unix://")
_WAIT = 0.8
"""Timeout in seconds for a response of Redis."""
_AT_ONCE = 100
_NAMES = ("tenant", "model", "tokens", "size", "created", "version")
_NOW = "local t = redis.call('TIME') local now = t[1] + t[2] / 1000000 "
_CREATE = """
if redis.call('ZCARD', 'segue:sessions:' .. ARGV[2]) >= tonumber(ARGV[7]) then return 'sessions' end
if tonumber(redis.call('GET', 'segue:bytes:' .. ARGV[2]) or '0') > tonumber(ARGV[8]) then return 'bytes' end
redis.call('HSET', 'segue:session:' .. ARGV[1], 'tenant', ARGV[2], 'model', ARGV[3], 'tokens', ARGV[4], 'size', ARGV[5],
  'created', now, 'version', 1, 'state', ARGV[6])
redis.call('ZADD', 'segue:sessions:' .. ARGV[2], now, ARGV[1])
redis.call('INCRBY', 'segue:bytes:' .. ARGV[2], ARGV[5])
redis.call('ZADD', 'segue:used', now, ARGV[1])
return tostring(now)
"""
_REPLACE = """
local key = 'segue:session:' .. ARGV[1]
if redis.call('GET', 'segue:lease:' .. ARGV[1]) ~= ARGV[2] then return 0 end
local old = redis.call('HMGET', key, 'version', 'size', 'tenant')
if old[1] ~= ARGV[3] then return 0 end
redis.call('HSET', key, 'tokens', ARGV[4], 'size', ARGV[5], 'state', ARGV[6], 'version', ARGV[3] + 1)
redis.call('INCRBY', 'segue:bytes:' .. old[3], ARGV[5] - old[2])
redis.call('ZADD', 'segue:used', now, ARGV[1])
return 1
"""
_REMOVE = """
local function remove(id)
  local found = redis.call('HMGET', 'segue:session:' .. id, 'tenant', 'size')
  redis.call('DEL', 'segue:session:' .. id, 'segue:lease:' .. id)
  redis.call('ZREM', 'segue:used', id)
  if found[1] then
    redis.call('ZREM', 'segue:sessions:' .. found[1], id)
    if redis.call('DECRBY', 'segue:bytes:' .. found[1], found[2]) <= 0 then
      redis.call('DEL', 'segue:bytes:' .. found[1])
    end
  end
end
"""
_DELETE = f"{_REMOVE} remove(ARGV[1]) return 1"
_SWEEP = f"""{_REMOVE} {_NOW}
local old = redis.call('ZRANGEBYSCORE', 'segue:used', '-inf', now - ARGV[1], 'LIMIT', 0, {_AT_ONCE})
for _, id in ipairs(old) do
  if redis.call('EXISTS', 'segue:lease:' .. id) == 0 then remove(id) end
end
return #old
"""
_RENEW = """
if redis.call('GET', 'segue:lease:' .. ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('PEXPIRE', 'segue:lease:' .. ARGV[1], ARGV[3])
return 1
"""
_RELEASE = """
if redis.call('GET', 'segue:lease:' .. ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('DEL', 'segue:lease:' .. ARGV[1])
if redis.call('EXISTS', 'segue:session:' .. ARGV[1]) == 1 then redis.call('ZADD', 'segue:used', now, ARGV[1]) end
return 1
"""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Record of a session, without its state."""

    id: str
    tenant: str
    model: str
    tokens: int
    size: int
    created: float
    version: int
    busy: bool


class RedisStore:
    """Sessions in a Redis database. Raises errors for clients: 503 if Redis does not respond, 507 if it is full."""

    def __init__(self, url: str) -> None:
        if find_spec("redis") is None:
            raise ConfigError(
                "sessions in Redis need the package redis; it is not installed. Install it: pip install redis."
            )
        self._errors = importlib.import_module("redis.exceptions")
        self._where = urlsplit(url).hostname or urlsplit(url).path
        try:
            self._redis = importlib.import_module("redis.asyncio").Redis.from_url(
                url, socket_timeout=_WAIT, socket_connect_timeout=_WAIT, decode_responses=False
            )
            scripts = {"create": _NOW + _CREATE, "replace": _NOW + _REPLACE, "release": _NOW + _RELEASE}
            scripts |= {"delete": _DELETE, "sweep": _SWEEP, "renew": _RENEW}
            self._scripts = {name: self._redis.register_script(script) for name, script in scripts.items()}
        except ValueError as error:
            raise ConfigError(
                f"--sessions must be an address of Redis, e.g. redis://localhost:6379/0; {error}."
            ) from None

    async def open(self) -> bytes:
        """Connect, and return the key that signs states; it is the same for all servers."""
        try:
            await self._redis.hsetnx("segue:meta", "format", FORMAT)
            await self._redis.hsetnx("segue:meta", "secret", secrets.token_bytes(32))
            found, secret = await self._redis.hmget("segue:meta", "format", "secret")
        except (self._errors.RedisError, OSError) as error:
            raise CheckpointError(
                f"the Redis on {self._where} must answer and be writable; got {str(error)[:200]}. Start it, or check "
                "--sessions."
            ) from None
        if found != FORMAT:
            raise CheckpointError(
                f"the Redis on {self._where} must have sessions of this version; got {found[:40]!r}. Use another "
                "database: redis://HOST:PORT/1."
            )
        return bytes(secret)

    async def close(self) -> None:
        """Close the connection; the sessions remain."""
        await self._redis.aclose()

    # ------------------------------------------------------------------------------------------------------- sessions

    async def create(
        self, id: str, tenant: str, model: str, *, tokens: int, data: bytes, size: int, most: int, most_bytes: int
    ) -> Shared:
        """Create a session; raise ApiError if its tenant has too many."""
        answer = await self._run("create", id, tenant, model, tokens, size, data, most, most_bytes)
        if answer in (b"sessions", b"bytes"):
            what, name = ("sessions", "max_sessions") if answer == b"sessions" else ("bytes", "max_session_bytes")
            limit = most if answer == b"sessions" else most_bytes
            raise ApiError(
                429,
                f"a tenant must have at most {limit:,} {what} of sessions; got more. Delete some, or start the server "
                f"with --set {name}=...",
                code=f"too_many_{what}",
                retry_after=60.0,
            )
        return Shared(
            id=id, tenant=tenant, model=model, tokens=tokens, size=size, created=float(answer), version=1, busy=False
        )

    async def find(self, id: str) -> Shared | None:
        """Return the record of a session; None if it does not exist."""
        return (await self._found([id]))[0]

    async def page(self, tenant: str, *, after: str | None, limit: int) -> tuple[list[Shared], bool]:
        """Return up to `limit` sessions of a tenant, the oldest first, and True if there are more."""
        key = f"segue:sessions:{tenant}"

        async def ids() -> list[bytes]:
            start = 0
            if after is not None:
                rank = await self._redis.zrank(key, after)
                if rank is None:
                    raise no_place(after)
                start = rank + 1
            return list(await self._redis.zrange(key, start, start + limit))

        found = [id.decode() for id in await self._call(ids)]
        known = [one for one in await self._found(found[:limit]) if one is not None]
        return known, len(found) > limit

    async def _found(self, ids: list[str]) -> list[Shared | None]:
        async def ask() -> list[Any]:
            pipe = self._redis.pipeline(transaction=False)
            for id in ids:
                pipe.hmget(f"segue:session:{id}", *_NAMES)
                pipe.exists(f"segue:lease:{id}")
            return list(await pipe.execute())

        answers = await self._call(ask) if ids else []
        found: list[Shared | None] = []
        for place, id in enumerate(ids):
            values, busy = answers[2 * place], answers[2 * place + 1]
            if values[0] is None:
                found.append(None)
                continue
            tenant, model, tokens, size, created, version = values
            found.append(
                Shared(
                    id=id,
                    tenant=tenant.decode(),
                    model=model.decode(),
                    tokens=int(tokens),
                    size=int(size),
                    created=float(created),
                    version=int(version),
                    busy=bool(busy),
                )
            )
        return found

    async def read(self, id: str, *, limit: int) -> bytes | None:
        """Return the state of a session; None if it does not exist. Raise ApiError if it is larger than `limit`."""

        async def ask() -> bytes | None:
            length = await self._redis.hstrlen(f"segue:session:{id}", "state")
            if length > limit:
                raise ApiError(
                    409,
                    f"a state must have at most {limit:,} bytes; got {length:,}. It is damaged: delete the session.",
                    code="state_refused",
                )
            found = await self._redis.hget(f"segue:session:{id}", "state")
            return None if found is None else bytes(found)

        state: bytes | None = await self._call(ask)
        return state

    async def replace(self, id: str, *, owner: str, version: int, tokens: int, size: int, data: bytes) -> bool:
        """Replace a session atomically. Return False if the lease has been lost, or if the session has changed since it
        was read."""
        return bool(await self._run("replace", id, owner, version, tokens, size, data))

    async def delete(self, id: str) -> None:
        """Delete a session, for all servers."""
        await self._run("delete", id)

    async def bytes_of(self, tenant: str) -> int:
        """Return the total size in bytes of a tenant's sessions."""
        return int(await self._call(lambda: self._redis.get(f"segue:bytes:{tenant}")) or 0)

    async def count(self) -> int:
        """Return the number of sessions of all tenants."""
        return int(await self._call(lambda: self._redis.zcard("segue:used")))

    async def sweep(self, lifetime: float) -> None:
        """Delete sessions that have not been used for `lifetime` seconds."""
        while await self._run("sweep", lifetime) >= _AT_ONCE:
            pass

    # --------------------------------------------------------------------------------------------------------- leases

    async def lease(self, id: str, owner: str, seconds: float) -> bool:
        """Try to lock a session for `seconds`; return True if this server may use it."""
        return bool(
            await self._call(
                lambda: self._redis.set(f"segue:lease:{id}", owner, nx=True, px=max(1, int(seconds * 1000)))
            )
        )

    async def renew(self, id: str, owner: str, seconds: float) -> bool:
        """Extend a lease; return False if it has been lost."""
        return bool(await self._run("renew", id, owner, max(1, int(seconds * 1000))))

    async def release(self, id: str, owner: str) -> None:
        """End a lease."""
        await self._run("release", id, owner)

    # ------------------------------------------------------------------------------------------------------ internals

    async def _run(self, script: str, *arguments: Any) -> Any:
        return await self._call(lambda: self._scripts[script](args=arguments))

    async def _call(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await ask()
        except self._errors.OutOfMemoryError:
            raise ApiError(
                507,
                "the session store is full. Delete sessions, or give Redis more memory.",
                code="store_full",
                retry_after=60.0,
            ) from None
        except (self._errors.RedisError, OSError) as error:
            raise unavailable() from error
