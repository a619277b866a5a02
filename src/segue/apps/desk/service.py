"""The running desk: a model in a worker thread, conversations in the database, and streams of waiting clients.

The database is authoritative. A message, its reply, their effects and the webhook events that report them are one
transaction; streams are then woken and read what is new from the database, so that a client that reconnects after a
crash neither misses a message nor gets one twice.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from segue.apps.database import Connection
from segue.apps.desk import reviews, store
from segue.apps.desk.confidence import NEVER, Outcomes, threshold_for
from segue.apps.desk.folder import read_model
from segue.apps.desk.model import DeskModel
from segue.apps.desk.phrases import phrase
from segue.apps.desk.reply import Reply, reply
from segue.apps.desk.report import counted
from segue.apps.desk.settings import DeskSettings
from segue.apps.desk.store import DESK, Said
from segue.apps.desk.writer import open_writer
from segue.apps.folder import MODELS, read_about
from segue.apps.outbox import Outbox
from segue.apps.running import follow_model
from segue.apps.webhooks import webhooks
from segue.serve.errors import ApiError, busy, not_ready, shown

T = TypeVar("T")
log = logging.getLogger("segue.apps")
AGENTS = "*"
"""Subject of the streams of agents."""


class DeskService:
    """A running desk."""

    def __init__(self, folder: Path, settings: DeskSettings, *, webhook: tuple[str, str] | None = None) -> None:
        self.folder, self.settings, self.ready = folder, settings, False
        self.database = DESK.database(folder, alone=True)
        self.model_name = DESK.current_model(folder)
        self.model: DeskModel = read_model(folder / MODELS / self.model_name)
        self.about = read_about(folder / MODELS / self.model_name)
        self._writer = open_writer(settings.generate, most_tokens=settings.max_generated) if settings.generate else None
        self.waiting = 0
        """Number of questions queued or being answered."""
        self._webhook = webhook
        self._webhooks: Outbox | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-desk")
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listening: dict[str, set[asyncio.Event]] = {}
        self._addresses: Counter[str] = Counter()
        """Numbers of visitor streams by address."""

    async def start(self) -> None:
        """Open the database, follow the model in use, and resume undelivered webhooks."""
        await asyncio.to_thread(self.database.open)
        error = await self.database.run(_accepted_error)
        if error is not None:
            self._use_error(error)
        self._watching = asyncio.create_task(
            follow_model(DESK, self.folder, in_use=lambda: self.model_name, take=self._use_model)
        )
        if self._webhook is not None:
            self._webhooks = webhooks(self.database, url=self._webhook[0], secret=self._webhook[1])
            await self._webhooks.start()
        self.ready = True

    async def stop(self) -> None:
        """Stop streams, webhooks and the worker thread, and close the database."""
        self.ready = False
        self.wake(*list(self._listening))
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        if self._webhooks is not None:
            await self._webhooks.stop()
        self._thread.shutdown()
        await self.database.close_later()

    def abandon(self) -> None:
        """End all streams."""
        self.ready = False
        self.wake(*list(self._listening))

    async def _use_model(self, name: str) -> None:
        model = await asyncio.to_thread(read_model, self.folder / MODELS / name)
        accepted = self.about["summary"]["accepted_error"]
        self.model, self.about, self.model_name = model, read_about(self.folder / MODELS / name), name
        self._use_error(accepted)

    # ---------------------------------------------------------------------------------------------------- conversations

    async def open(self, *, person: str, language: str) -> dict[str, Any]:
        """Open a conversation; idle ones of the person are closed if needed."""

        def work(connection: Connection) -> dict[str, Any]:
            (count,) = connection.execute("SELECT count(*) FROM conversations").fetchone()
            if count >= self.settings.max_conversations:
                raise _full("conversations", self.settings.max_conversations, "Ask its operator to allow more.")
            spare = self.settings.max_open - store.open_of(connection, person) - 1
            if spare < 0 and store.close_idle(connection, person, -spare, idle=self.settings.idle) < -spare:
                raise _full("open conversations of a person", self.settings.max_open, "Go on with one of them.")
            return store.open_conversation(connection, person=person, language=language)

        return await self.write(work, AGENTS)

    async def conversation(self, id: str) -> dict[str, Any]:
        """Return a conversation; raise an ApiError (404) if it does not exist."""
        return await self.database.run(lambda connection: _existing(connection, id))

    async def visitor_says(self, id: str, text: str, *, client: str, chosen: str | None) -> list[dict[str, Any]]:
        """Store a visitor's message, with the reply if the desk leads the conversation, and return both. A message that
        was sent before returns what it returned the first time."""
        if not self.ready:
            raise not_ready()
        async with self._locks.setdefault(id, asyncio.Lock()):
            found, before, sent = await self.database.run(lambda connection: self._look(connection, id, client))
            if sent is not None:
                return _same(sent, text, author="visitor")
            said = [Said(author="visitor", text=text, client=client)]
            changes: dict[str, Any] = {}
            if found["state"] == "resolved":
                changes = {"state": "desk", "agent": None, "reason": None, "failures": 0}
                found |= changes
            if found["state"] == "desk":
                answered = await self._reply(found, before, text, chosen)
                said.append(Said(author="desk", text=answered.text, about=answered.about))
                changes |= answered.changes
            return await self.write(lambda connection: _say(connection, id, said, changes, chosen), id, AGENTS)

    def _look(
        self, connection: Connection, id: str, client: str
    ) -> tuple[dict[str, Any], list[str], list[dict[str, Any]] | None]:
        """Return the conversation, the visitor's last messages, and what was sent before under this id."""
        found = _existing(connection, id)
        sent = store.sent_before(connection, id, client)
        (count,) = connection.execute("SELECT count(*) FROM messages WHERE conversation = ?", (id,)).fetchone()
        if sent is None and count >= self.settings.max_messages:
            raise _full("messages of a conversation", self.settings.max_messages, "Open a new one.")
        rows = connection.execute(
            "SELECT text FROM messages WHERE conversation = ? AND author = 'visitor' ORDER BY number DESC LIMIT 3",
            (id,),
        ).fetchall()
        return found, [text for (text,) in reversed(rows)], sent

    async def _reply(self, found: dict[str, Any], before: list[str], text: str, chosen: str | None) -> Reply:
        if self.waiting >= self.settings.max_queue:
            raise busy()
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread,
                lambda: reply(self.model, found, before, text, self.settings, chosen=chosen, writer=self._writer),
            )
        finally:
            self.waiting -= 1

    # --------------------------------------------------------------------------------------------------------- agents

    async def agent_does(
        self, id: str, agent: str, action: str, text: str | None = None, *, client: str | None = None
    ) -> list[dict[str, Any]]:
        """Take a conversation over, answer, let the desk go on, or resolve it. An answer sent again with the same
        `client` id changes nothing, and neither does an action whose state is already reached."""

        def work(connection: Connection) -> list[dict[str, Any]]:
            found = _existing(connection, id)
            sent = None if client is None else store.sent_before(connection, id, client)
            if sent is not None:
                return _same(sent[:1], text, author="agent")
            if action == "take" or (action == "say" and found["state"] != "agent"):
                store.change(connection, id, {"state": "agent", "agent": agent})
            if action == "say":
                assert text is not None
                said = store.say(connection, id, [Said(author="agent", name=agent, text=text, client=client)])
                reviews.propose(connection, id, said[-1]["number"])
                return said
            if action == "release" and found["state"] != "desk":
                resumed = Said(author="desk", text=phrase(found["language"], "resumed"), about={"kind": "resumed"})
                changes = {"state": "desk", "agent": None, "reason": None, "failures": 0}
                return store.say(connection, id, [resumed], changes=changes)
            if action == "resolve":
                store.change(connection, id, {"state": "resolved", "agent": agent})
            return []

        return await self.write(work, id, AGENTS)

    # ------------------------------------------------------------------------------------------------------- operators

    async def set_error(self, error: float) -> dict[str, Any]:
        """Set the accepted error, and return the resulting decision."""
        await self.write(
            lambda connection: connection.execute(
                "INSERT INTO settings (name, value) VALUES ('error', ?) ON CONFLICT (name) DO UPDATE SET "
                "value = excluded.value",
                (str(error),),
            )
        )
        self._use_error(error)
        return self.decision()

    def _use_error(self, error: float) -> None:
        threshold = threshold_for(Outcomes.of(self.about["held"]), error=error)
        self.model = replace(self.model, fitted=replace(self.model.fitted, threshold=threshold))
        self.about["summary"]["accepted_error"] = error

    def decision(self) -> dict[str, Any]:
        """Return the accepted error, the threshold, their effect on the held-out questions, and the curve of error
        against coverage."""
        threshold = self.model.fitted.threshold
        summary = self.about["summary"]
        answers = summary["without_answer"] < summary["topics"]
        counts = Outcomes.of(self.about["held"]).at(threshold if answers else NEVER)
        return {
            "model": self.model_name,
            "accepted_error": summary["accepted_error"],
            "threshold": threshold,
            "expected_answered": counts.share_answered,
            "expected_error": counts.share_wrong if counts.answered else None,
            **counted(counts),
            "curve": summary["curve"],
        }

    # --------------------------------------------------------------------------------------------------------- waiting

    async def write(self, work: Callable[[Connection], T], *subjects: str) -> T:
        """Run `work` in one transaction, then wake the streams of some subjects and the webhooks."""
        found = await self.database.run(work)
        self.wake(*subjects)
        if self._webhooks is not None:
            self._webhooks.wake()
        return found

    def wake(self, *subjects: str) -> None:
        """Wake the streams of some subjects: ids of conversations, or `AGENTS`."""
        for subject in subjects:
            for event in self._listening.get(subject, ()):
                event.set()

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return sum(map(len, self._listening.values()))

    def listen(self, subject: str, address: str) -> asyncio.Event:
        """Return an event that is set whenever there is something new; release it with `unlisten`. Visitors and agents
        have separate limits, so that neither can crowd out the other."""
        agents = len(self._listening.get(AGENTS, ()))
        if subject == AGENTS:
            full = agents >= self.settings.max_agent_streams
        else:
            full = (
                self.streams - agents >= self.settings.max_streams
                or self._addresses[address] >= self.settings.max_streams_of_address
            )
            self._addresses[address] += not full
        if full:
            self._addresses += Counter()  # without those that have none
            raise busy()
        event = asyncio.Event()
        self._listening.setdefault(subject, set()).add(event)
        return event

    def unlisten(self, subject: str, address: str, event: asyncio.Event) -> None:
        """Release an event of `listen`."""
        waiting = self._listening.get(subject, set())
        waiting.discard(event)
        if not waiting:
            self._listening.pop(subject, None)
        if subject != AGENTS:
            self._addresses -= Counter({address: 1})


def _say(
    connection: Connection, id: str, said: list[Said], changes: dict[str, Any], chosen: str | None
) -> list[dict[str, Any]]:
    _existing(connection, id)  # its person may have been deleted while the desk thought
    written = store.say(connection, id, said, changes=changes)
    template = written[-1]["about"].get("template")
    if chosen is not None and template is not None:
        reviews.propose_choice(connection, id, written[-1]["number"], topic=chosen, answer=template)
    return written


def _existing(connection: Connection, id: str) -> dict[str, Any]:
    found = store.conversation(connection, id)
    if found is None:
        raise ApiError(404, f"a conversation must exist; got {shown(id)}. Open one first.", code="not_found")
    return found


def _same(sent: list[dict[str, Any]], text: str | None, *, author: str) -> list[dict[str, Any]]:
    """Return what was sent before under an id; raise an ApiError if it was another message."""
    if sent[0]["text"] != text or sent[0]["author"] != author:
        raise ApiError(
            409,
            "id must be different for each message; got one that another message has already. Choose a new id.",
            code="id_taken",
            param="id",
        )
    return sent


def _accepted_error(connection: Connection) -> float | None:
    """Return the accepted error that an operator set; None if there is none, or it is invalid."""
    row = connection.execute("SELECT value FROM settings WHERE name = 'error'").fetchone()
    if row is None:
        return None
    try:
        error = float(row[0])
    except ValueError:
        error = 0.0
    if 0 < error < 1:
        return error
    log.error(
        "the accepted error in the database must be between 0 and 1; got %s. The model's own is used.", shown(row[0])
    )
    return None


def _full(what: str, limit: int, remedy: str) -> ApiError:
    return ApiError(429, f"there must be at most {limit:,} {what}; got one more. {remedy}", code="too_many")
