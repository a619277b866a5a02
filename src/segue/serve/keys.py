"""API keys from a file, each of a tenant.

Each line of the file is a tenant and a key, separated by a space; empty lines and lines that begin with # are ignored.
A tenant may have several keys. Only the sha256 of a key is stored. A given key is compared with all of them, each in
constant time, so that the response time reveals nothing about a key.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path

from segue.checkpoint.files import read_small
from segue.errors import ConfigError

LOCAL = "local"
"""Tenant of a server without keys."""
LARGEST = 1 << 20
SHORTEST = 16
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The sha256 of each key, with its tenant."""

    tenants: tuple[tuple[bytes, str], ...]

    def tenant(self, header: str | None) -> str | None:
        """Return the tenant of a request with this Authorization header; None without a valid key."""
        scheme, _, key = (header or "").partition(" ")
        given = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        found = None
        for digest, tenant in self.tenants:
            if hmac.compare_digest(digest, given):
                found = tenant
        return found if scheme.lower() == "bearer" else None


def _shape(words: list[str]) -> str:
    """Describe an invalid line without revealing a key."""
    if len(words) != 2:
        return f"{len(words)} words"
    return f"a key of {len(words[1])} characters" if _TENANT.fullmatch(words[0]) else "another name"


def read_keys(path: Path) -> Keys:
    """Read the keys of a file."""
    found: dict[bytes, str] = {}
    try:
        lines = read_small(path, limit=LARGEST).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} must be UTF-8 text; got other bytes. Save it as UTF-8.") from None
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not _TENANT.fullmatch(words[0]) or len(words[1]) < SHORTEST:
            raise ConfigError(
                f"{path}, line {number}, must be a tenant (letters, digits, . _ -) and a key of at least {SHORTEST} "
                f"characters; got {_shape(words)}. Write: alice {'x' * SHORTEST}, with a key of your own."
            )
        digest = hashlib.sha256(words[1].encode()).digest()
        if found.get(digest, words[0]) != words[0]:
            raise ConfigError(f"{path}, line {number}, must have a key of its own; got one of another tenant.")
        found[digest] = words[0]
    if not found:
        raise ConfigError(f"{path} must have a key; got none. Write lines: TENANT KEY.")
    return Keys(tenants=tuple(found.items()))
