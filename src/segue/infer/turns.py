"""Locks of sessions: one thread at a time. A second one is refused, so that no state is mixed or lost.

`changing` is for reading and writing, `looking` for copying, which several threads may do at a time. A session that
generates token by token holds a Turn from the first token to the last: other threads are refused between two tokens,
too. While sessions generate in a batch, which then holds their state, all callers are refused.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from segue.errors import DataError


class Turn:
    """The turn of a text being generated. It ends when `over` is set, or when it is no longer referenced."""

    def __init__(self, *, batched: bool = False) -> None:
        self.batched = batched
        """Whether the session generates in a batch with others."""
        self.thread = threading.get_ident()
        """The thread that generated last."""
        self.over = False


class Turns:
    """The lock of one session: one thread at a time may use it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._changing = False
        self._looking: set[object] = set()
        self._turn: weakref.ref[Turn] | None = None

    @contextmanager
    def changing(self, turn: Turn | None = None) -> Iterator[None]:
        """Exclude every other use in this context. `turn`: the turn of the caller, if it holds one."""
        mine = False
        try:  # all of it, because Ctrl-C may come at any point
            with self._guard:
                self._check(turn, free=not self._changing and not self._looking)
                mine = self._changing = True
                if turn is not None:
                    turn.thread = threading.get_ident()
            yield
        finally:
            if mine:
                self._changing = False

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Exclude changes in this context; several threads may look at a time."""
        me = object()
        try:
            with self._guard:
                self._check(None, free=not self._changing)
                self._looking.add(me)
            yield
        finally:
            self._looking.discard(me)

    def give(self, turn: Turn) -> None:
        """Give the session to a text that is generated from now on; call inside `changing`."""
        self._turn = weakref.ref(turn)

    def _check(self, turn: Turn | None, *, free: bool) -> None:
        holder = None if self._turn is None else self._turn()
        if holder is None or holder.over or holder is turn:
            holder = None
        if holder is not None and holder.batched:
            raise DataError(
                "a session in a batched generation must not be used until it ends; got a call in the meantime. Finish "
                "that loop or close its iterator first, or fork the session beforehand."
            )
        if not free or (holder is not None and holder.thread != threading.get_ident()):
            raise DataError(
                "a session must be used by one thread at a time; got a call while another thread reads or writes with "
                "it. Give each thread its own session with session.fork(), or let them take turns."
            )
