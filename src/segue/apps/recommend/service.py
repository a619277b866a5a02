"""A running recommender: the model in a worker thread, events in the database, sessions in memory.

The database is authoritative. An event is stored before it is acknowledged, and read by the session afterwards; a
session can be rebuilt from its saved state and the events since. So kill -9 loses no acknowledged event, and a session
that continues is the same bit for bit. All work with the database is done in the model's thread.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from segue.apps.database import Connection, DatabaseFullError
from segue.apps.folder import MODELS, model_names, read_about
from segue.apps.recommend import store
from segue.apps.recommend.folder import read_model
from segue.apps.recommend.model import Recommender, Session
from segue.apps.recommend.ranking import Wish, choose, unknown_tag
from segue.apps.recommend.reasons import reasons
from segue.apps.recommend.retrieval import Retrieval, candidate_scores
from segue.apps.recommend.rules import read_rules, with_rules
from segue.apps.recommend.settings import ServiceSettings
from segue.apps.recommend.store import RECOMMEND
from segue.apps.recommend.tables import Event, Item
from segue.apps.running import WATCHED, follow_model
from segue.errors import DataError, SegueError
from segue.serve.errors import ApiError, busy, not_ready, shown

T = TypeVar("T")
log = logging.getLogger("segue.apps")


class Loaded:
    """A loaded model with the sessions of its users, least recently used first."""

    def __init__(self, folder: Path, name: str, *, retrieval: Literal["exact", "faiss"]) -> None:
        self.name = name
        self.model = read_model(folder / MODELS / name)
        self.about = read_about(folder / MODELS / name)
        self.retrieval = Retrieval(self.model, kind=retrieval) if retrieval != "exact" else None
        self.sessions: OrderedDict[str, Session] = OrderedDict()
        self.unsaved: dict[str, int] = {}
        """Number of events that each session has read since it was saved."""
        self.items = 0
        """Number of the last item loaded from the database."""


class RecommendService:
    """The service of one recommender, with the current model and at most one other in memory."""

    def __init__(self, folder: Path, settings: ServiceSettings) -> None:
        self.folder, self.settings, self.ready = folder, settings, False
        name = RECOMMEND.current_model(folder)
        self.database = RECOMMEND.database(folder, alone=True)
        self.current = self._load(name)
        self.other: Loaded | None = None
        self.rules = read_rules(folder)
        self.waiting = 0
        """Number of requests waiting for the model."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-recommend")

    async def start(self) -> None:
        """Open the database, and follow changes of the current model and the rules."""
        await asyncio.to_thread(self.database.open)
        names = model_names(self.folder)
        await self.database.run(lambda connection: store.drop_sessions(connection, names))
        models = follow_model(RECOMMEND, self.folder, in_use=lambda: self.current.name, take=self._use_model)
        self._watching = [asyncio.create_task(models), asyncio.create_task(self._follow_rules())]
        self.ready = True

    async def stop(self) -> None:
        """Save unsaved sessions, and close the database."""
        self.ready = False
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._save_all)
        except SegueError as error:  # they are made again from the events
            log.error("sessions were not saved: %s", error)
        self._thread.shutdown()
        await self.database.close_later()

    def abandon(self) -> None:
        """Accept no further requests."""
        self.ready = False

    async def _use_model(self, name: str) -> None:
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._load, name)
        self.other, self.current = self.current, found

    async def _follow_rules(self) -> None:
        """Reload changed rules; if they cannot be read, the previous ones stay in use."""
        while True:
            await asyncio.sleep(WATCHED)
            try:
                self.rules = read_rules(self.folder)
            except (SegueError, OSError) as error:
                log.error("the rules in use go on: %s", error)

    def _load(self, name: str) -> Loaded:
        return Loaded(self.folder, name, retrieval=self.settings.retrieval)

    # ------------------------------------------------------------------------------------------------------- requests

    async def compute(self, work: Callable[[], T]) -> T:
        """Run a function in the model's thread; raise ApiError if too many requests are waiting."""
        if not self.ready:
            raise not_ready()
        if self.waiting >= self.settings.max_queue:
            raise busy()
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self.waiting -= 1

    def take_events(self, events: Sequence[tuple[str | None, Event]]) -> list[dict[str, Any]]:
        """Store events, all or none, then update the sessions. An id that is already stored is not stored again."""

        def work(connection: Connection) -> list[tuple[int, bool]]:
            self._check_room(connection, {event.item for _, event in events})
            return [store.add_event(connection, event, id) for id, event in events]

        written = self.database.do(work)
        fresh = Counter(event.item for (_, event), (_, new) in zip(events, written, strict=True) if new)
        for loaded in (self.current, self.other):
            if loaded is not None and loaded.items:  # otherwise they are counted when the items are loaded
                self._know(loaded, [(0, event) for _, event in events])
                loaded.model.count_events(fresh)
        for user in dict.fromkeys(event.user for _, event in events):
            if user in self.current.sessions:
                self.session(self.current, user)
        return [{"number": number, "new": new} for number, new in written]

    def take_items(self, changes: Sequence[Mapping[str, Any]]) -> int:
        """Store items, or the given fields of known ones, and update the loaded models; return the number of new
        ones."""

        def work(connection: Connection) -> tuple[int, list[Item]]:
            self._check_room(connection, {one["id"] for one in changes})
            (before,) = connection.execute("SELECT count(*) FROM items").fetchone()
            items = store.change_items(connection, changes)
            (after,) = connection.execute("SELECT count(*) FROM items").fetchone()
            return int(after) - int(before), items

        new, items = self.database.do(work)
        for loaded in (self.current, self.other):
            if loaded is not None:
                self._take_items(loaded)
                loaded.model.add_items(items)
        return new

    def withdraw(self, item: str) -> None:
        """Never list an item again, until it is added again."""
        if self.database.do(lambda connection: store.item_of(connection, item)) is None:
            raise _unknown(item)
        self.take_items([{"id": item, "withdrawn": True}])

    def _check_room(self, connection: Connection, ids: set[str]) -> None:
        (count,) = connection.execute("SELECT count(*) FROM items").fetchone()
        if count + len(ids) > self.settings.max_catalogue:
            known = sum(
                connection.execute("SELECT count(*) FROM items WHERE id = ?", (id,)).fetchone()[0] for id in ids
            )
            if count + len(ids) - known > self.settings.max_catalogue:
                raise ApiError(
                    429,
                    f"there must be at most {self.settings.max_catalogue:,} items; got more. Start the server with "
                    "--set max_catalogue=...",
                    code="too_many",
                )

    def suggest(
        self,
        user: str,
        *,
        wish: Wish,
        count: int,
        then: Sequence[Event],
        why: bool,
        model: str | None,
    ) -> dict[str, Any]:
        """Return a list for a user; `then` are hypothetical events, read by a fork of the session."""
        loaded = self.loaded(model)
        _check_tags(loaded.model, wish)
        session = self.session(loaded, user)
        if then:
            for event in then:
                _known(loaded.model, event.item)
            session = session.fork()
            loaded.model.read(session, [(session.number, event) for event in then])
        scores_V, places = self._ranked(loaded, session, with_rules(self.rules, wish), count=count)
        found = reasons(loaded.model, session, places) if why else [None for _ in places]
        items = []
        for place, reason in zip(places, found, strict=True):
            because = None
            if reason is not None:
                about = loaded.model.items[reason.item - 1]
                because = {
                    "item": about.id,
                    "title": about.title,
                    "attention": round(reason.attention, 4),
                    "fall": round(reason.fall, 4),
                }
            items.append(
                described(loaded.model.items[place - 1])
                | {"log_probability": round(float(scores_V[place]), 4), "because": because}
            )
        return {"user": user, "model": loaded.name, "items": items}

    def _ranked(
        self, loaded: Loaded, session: Session, wish: Wish, *, count: int
    ) -> tuple[NDArray[np.float32], list[int]]:
        """Return the log-probabilities, and the places of the items of a list. With an index, only candidates are
        scored, unless the wish can lift any item into the list, or leaves too few of the candidates."""
        model = loaded.model
        exact = bool(wish.boost or wish.novelty or wish.least_new)
        if loaded.retrieval is not None and session.hidden_D is not None and not exact:
            loaded.retrieval.refresh()
            named = [model.places[id] for id in (*wish.first, *wish.boost_items) if id in model.places]
            scores_V = candidate_scores(loaded.retrieval, session, count=self.settings.candidates, besides=named)
            places = choose(model, scores_V, wish, count=count, seen=session.seen)
            if len(places) == count:
                return scores_V, places
        scores_V = model.scores(session)
        return scores_V, choose(model, scores_V, wish, count=count, seen=session.seen)

    def similar(self, item: str, *, count: int, wish: Wish) -> list[dict[str, Any]]:
        """Return the items with the most similar vectors. Business rules that exclude or limit items hold here too;
        those that boost or pin items do not."""
        model = self.loaded(None).model
        _check_tags(model, wish)
        scores_V = model.similar(_known(model, item))
        limits = self.rules.model_copy(update={"boost": {}, "boost_items": {}, "first": [], "least_new": None})
        asked = with_rules(limits, wish)
        others = asked.model_copy(update={"without_items": [*asked.without_items, item]})
        places = choose(model, scores_V, others, count=count, seen=set())
        return [described(model.items[one - 1]) | {"cosine": round(float(scores_V[one]), 4)} for one in places]

    # -------------------------------------------------------------------------------------------------------- sessions

    def loaded(self, name: str | None) -> Loaded:
        """Return the current model, or another by name, which stays in memory until a third is requested."""
        if name is None or name == self.current.name:
            found = self.current
        elif self.other is not None and self.other.name == name:
            found = self.other
        else:
            names = model_names(self.folder)
            if name not in names:
                raise ApiError(
                    404, f"model must be one of {', '.join(names)}; got {shown(name)}.", code="not_found", param="model"
                )
            try:
                found = self.other = self._load(name)
            except SegueError as error:
                log.error("model %s was asked for: %s", name, error)
                raise ApiError(
                    404,
                    f"model must be one that can be read; got {shown(name)}, which cannot. The log says why.",
                    code="not_found",
                    param="model",
                ) from None
        if not found.items:
            self._take_items(found)
        return found

    def _take_items(self, loaded: Loaded) -> None:
        """Load new items from the database, always in order of their numbers, because saved sessions refer to items by
        place."""
        numbered = self.database.do(lambda connection: store.all_items(connection, after=loaded.items))
        loaded.model.add_items(item for _, item in numbered)
        if not loaded.items:
            loaded.model.count_events(self.database.do(store.events_by_item))
        loaded.items = max((number for number, _ in numbered), default=loaded.items)

    def session(self, loaded: Loaded, user: str) -> Session:
        """Return the session of a user, which has read all stored events, in order of time: from memory, or from its
        saved state and the events since. It is made again from all events if one of the new ones is older than those
        that it has read, or if its own were deleted by another program."""
        found = loaded.sessions.get(user) or self._restored(loaded, user)
        events = None
        if found is not None:
            number = found.number
            events = self.database.do(lambda connection: store.history_after(connection, user, number))
        if found is None or events is None or _is_late(found, events):
            loaded.unsaved.pop(user, None)
            found = self._first(loaded, user)
        else:
            self._know(loaded, events)
            for one in events:
                loaded.model.read(found, [one])
                self._count(loaded, user, found)
        loaded.sessions[user] = found
        loaded.sessions.move_to_end(user)
        self._make_room(loaded)
        return found

    def _restored(self, loaded: Loaded, user: str) -> Session | None:
        """Return the session of a user from its saved state; None if there is none, or if it is damaged."""
        saved = self.database.do(lambda connection: store.saved_session(connection, user, loaded.name))
        if saved is None:
            return None
        try:
            return loaded.model.restored(saved[1], saved[0])
        except DataError as error:
            log.error("a session is made again from the events: %s", error)
            self.database.do(lambda connection: store.drop_session(connection, user, loaded.name))
            return None

    def _first(self, loaded: Loaded, user: str) -> Session:
        """Read a whole history, and save the session."""
        events = self.database.do(lambda connection: store.history(connection, user))
        self._know(loaded, events)
        session = loaded.model.read_history(events)
        if events:
            self._save(loaded, user, session)
        return session

    def _count(self, loaded: Loaded, user: str, session: Session) -> None:
        unsaved = loaded.unsaved.get(user, 0) + 1
        loaded.unsaved[user] = unsaved
        if unsaved >= self.settings.save_every:
            self._save(loaded, user, session)

    def _know(self, loaded: Loaded, events: Sequence[tuple[int, Event]]) -> None:
        if any(event.item not in loaded.model.places for _, event in events):
            self._take_items(loaded)

    def _save(self, loaded: Loaded, user: str, session: Session) -> None:
        """Save a session. On a full disk it stays unsaved: it can be made again from the events, and lists go on."""
        state = loaded.model.saved(session)
        try:
            self.database.do(
                lambda connection: store.save_session(connection, user, loaded.name, session.number, state)
            )
        except DatabaseFullError as error:
            log.error("a session was not saved: %s", error)
            loaded.unsaved.setdefault(user, 1)
        else:
            loaded.unsaved.pop(user, None)

    def _make_room(self, loaded: Loaded) -> None:
        while len(loaded.sessions) > self.settings.max_sessions:
            user, session = loaded.sessions.popitem(last=False)
            if loaded.unsaved.get(user):
                self._save(loaded, user, session)

    def _save_all(self) -> None:
        for loaded in (self.current, self.other):
            if loaded is not None:
                for user in list(loaded.unsaved):
                    if user in loaded.sessions:
                        self._save(loaded, user, loaded.sessions[user])

    def forget(self, person: str) -> dict[str, Any]:
        """Delete all data of a person from the database, its log and memory; return what was stored."""
        found = self.database.do(lambda connection: store.of_person(connection, person))
        self.database.do(lambda connection: store.forget(connection, person))
        self.database.clean()
        for loaded in (self.current, self.other):
            if loaded is not None:
                loaded.sessions.pop(person, None)
                loaded.unsaved.pop(person, None)
        return found


def _is_late(session: Session, events: Sequence[tuple[int, Event]]) -> bool:
    """Return True if an event is older than the last one that a session has read."""
    return bool(events) and session.last is not None and events[0][1].time < session.last


def described(item: Item) -> dict[str, Any]:
    """Return an item as JSON values."""
    return {"item": item.id, "title": item.title, "tags": list(item.tags), "price": item.price}


def _check_tags(model: Recommender, wish: Wish) -> None:
    if (unknown := unknown_tag(model, wish)) is not None:
        raise ApiError(
            400,
            f"{unknown[0]} must be tags of items, in the same case; got {shown(unknown[1])}, which no item has. Use "
            "another tag.",
            code="invalid_value",
            param=f"wish.{unknown[0]}",
        )


def _known(model: Recommender, item: str) -> int:
    place = model.places.get(item)
    if place is None:
        raise _unknown(item)
    return place


def _unknown(item: str) -> ApiError:
    return ApiError(404, f"an item must be known; got {shown(item)}. Add it first.", code="not_found", param="item")
