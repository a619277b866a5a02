"""Roles and keys: keys from a file, each with a role and a name.

A line of the file is `ROLE NAME KEY`. Roles are visitor, agent and operator; each includes the rights of the ones
before it. If the file has no line for visitors, everyone who reaches the server is one. Without a file the server
listens on this machine only, and every caller is an operator.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from segue.checkpoint.files import read_small
from segue.errors import ConfigError
from segue.serve.keys import LARGEST, SHORTEST, Keys

Role = Literal["visitor", "agent", "operator"]
ROLES: tuple[Role, ...] = ("visitor", "agent", "operator")
_NAME = re.compile(r"[\w.@-]{1,64}")


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller of a request."""

    role: Role
    name: str

    def may(self, role: Role) -> bool:
        """Return True if the caller has this role, or one above it."""
        return ROLES.index(self.role) >= ROLES.index(role)


ANYONE = Caller(role="visitor", name="")
LOCAL = Caller(role="operator", name="local")


@dataclass(frozen=True, kw_only=True)
class RoleKeys:
    """The keys of a file."""

    keys: Keys
    callers: dict[str, Caller]
    open_to_visitors: bool
    """True if visitors need no key."""

    def caller(self, header: str | None) -> Caller | None:
        """Return the caller of a request with this Authorization header; None if it must not be answered."""
        found = self.keys.tenant(header)
        if found is not None:
            return self.callers[found]
        return ANYONE if self.open_to_visitors and header is None else None


def read_role_keys(path: Path) -> RoleKeys:
    """Read the keys of a file."""
    try:
        lines = read_small(path, limit=LARGEST).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} must be UTF-8 text; got other bytes. Save it as UTF-8.") from None
    found: dict[bytes, str] = {}
    callers: dict[str, Caller] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        role = next((one for one in ROLES if one == words[0]), None)
        if len(words) != 3 or role is None or not _NAME.fullmatch(words[1]) or len(words[2]) < SHORTEST:
            raise ConfigError(
                f"{path}, line {number}, must be a role ({', '.join(ROLES)}), a name and a key of at least {SHORTEST} "
                f"characters; got {len(words)} words. Write: agent alice {'x' * SHORTEST}, with a key of your own."
            )
        digest = hashlib.sha256(words[2].encode()).digest()
        if digest in found:
            raise ConfigError(f"{path}, line {number}, must have a key of its own; got one of another line.")
        found[digest] = f"{role} {words[1]}"
        callers[found[digest]] = Caller(role=role, name=words[1])
    if not callers:
        raise ConfigError(f"{path} must have a key; got none. Write lines: ROLE NAME KEY.")
    return RoleKeys(
        keys=Keys(tenants=tuple(found.items())),
        callers=callers,
        open_to_visitors=all(one.role != "visitor" for one in callers.values()),
    )
