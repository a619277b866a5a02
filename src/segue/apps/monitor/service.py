"""A running monitor: its sources, the model in a worker thread, the database, and pages that wait for updates.

The database is authoritative. A batch of texts is one transaction (`stream`); pages are woken afterwards and read the
updates from the database. Texts arrive from the operator's sources and the POST route, one batch after the other.

While texts arrive live (the newest is less than a day old), the clock moves the watermark too, so that the last texts
of an evening are judged without waiting for the next morning.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from segue.apps.database import Connection
from segue.apps.folder import MODELS, read_about
from segue.apps.monitor import store
from segue.apps.monitor.feeds import Poller
from segue.apps.monitor.folder import read_model
from segue.apps.monitor.growing import bad_reason, next_line, read_more, row_of
from segue.apps.monitor.listing import take_names
from segue.apps.monitor.mail import mails
from segue.apps.monitor.prices import Closes, read_prices
from segue.apps.monitor.reading import AT_ONCE, made_batch
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import Listed, Source
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.stream import NEWEST, Batch, Stream, Written
from segue.apps.monitor.texts import Rows
from segue.apps.monitor.watch import DAY
from segue.apps.outbox import Outbox
from segue.apps.running import WATCHED, follow_model
from segue.apps.webhooks import webhooks
from segue.errors import SegueError
from segue.serve.errors import busy, not_ready

T = TypeVar("T")
log = logging.getLogger("segue.apps")
CLOCK = 15.0
"""Seconds between updates of the watermark by the clock."""
TROUBLED = 30.0
"""Seconds before a source that failed is read again."""


def file_state(path: Path) -> tuple[int, int] | None:
    """Return modification time and size of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class MonitorService:
    """The service behind the routes of a monitor."""

    def __init__(
        self,
        folder: Path,
        settings: MonitorSettings,
        *,
        listed: Listed,
        webhook: tuple[str, str] | None = None,
        password: str = "",
    ) -> None:
        self.folder, self.settings, self.ready, self.listed = folder, settings, False, listed
        self.database = MONITOR.database(folder, alone=True)
        self.model_name = MONITOR.current_model(folder)
        self.model = read_model(folder / MODELS / self.model_name)
        self.about = read_about(folder / MODELS / self.model_name)
        self.prices: dict[str, Closes] = {} if listed.prices is None else read_prices(Path(listed.prices.path))
        self.waiting = 0
        """Number of batches that are being processed."""
        self._stream = Stream(settings.rules())
        self._turn, self._listing = asyncio.Lock(), asyncio.Lock()
        self._webhook, self._password = webhook, password
        self._senders: list[Outbox] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-monitor")
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: set[asyncio.Event] = set()

    async def start(self) -> None:
        """Open the database, resume pending notifications, and start reading the sources."""
        await asyncio.to_thread(self.database.open)
        if self._webhook is not None:
            self._senders.append(webhooks(self.database, url=self._webhook[0], secret=self._webhook[1]))
        if self.listed.mail is not None:
            self._senders.append(mails(self.database, self.listed.mail, password=self._password))
        for sender in self._senders:
            await sender.start()
        self.ready = True
        models = follow_model(MONITOR, self.folder, in_use=lambda: self.model_name, take=self._use_model)
        prices = [] if self.listed.prices is None else [self._follow_prices(Path(self.listed.prices.path))]
        jobs = [models, self._clock(), *prices, *(self._follow(one) for one in self.listed.source)]
        self._tasks = [asyncio.create_task(job) for job in jobs]

    async def stop(self) -> None:
        """Stop all tasks; everything that was accepted is on disk."""
        self.abandon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sender in self._senders:
            await sender.stop()
        async with self._turn:
            self._thread.shutdown()
        await self.database.close_later()

    def abandon(self) -> None:
        """End the event streams."""
        self.ready = False
        self.wake()

    # ----------------------------------------------------------------------------------------------------------- texts

    async def post(self, rows: Sequence[Mapping[str, Any]], how: Rows) -> tuple[Written, list[tuple[str, Any]]]:
        """Process texts of the POST route; return what was written, and the rejected rows with reasons."""
        if not self.ready:
            raise not_ready()
        if self.waiting >= self.settings.max_queue:
            raise busy()
        batch = made_batch(how.source, rows, how)
        return await self.take(batch), list(batch.refused)

    async def take(self, batch: Batch) -> Written:
        """Process one batch, then wake pages, webhooks and mails."""
        self.waiting += 1
        try:
            async with self._turn:
                return await asyncio.shield(self._taken(batch))
        finally:
            self.waiting -= 1

    async def _taken(self, batch: Batch) -> Written:
        stream, model, name = self._stream, self.model, self.model_name
        looked = await self.database.run(lambda connection: stream.look(connection, batch))
        loop = asyncio.get_running_loop()
        read = await loop.run_in_executor(self._thread, stream.read, batch, looked, model, name)
        written = await self._write(lambda connection: stream.write(connection, read))
        self.wake()
        return written

    async def _write(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self.database.run(work)
        except BaseException:
            self._stream.forget()
            raise

    # --------------------------------------------------------------------------------------------------------- sources

    async def _follow(self, source: Source) -> None:
        """Read a source as long as the monitor runs; failures are noted, and the source is read again."""
        while True:
            try:
                if source.kind in ("file", "folder"):
                    await self._grow(source)
                elif source.kind == "stdin":
                    await self._lines(source)
                    return
                else:
                    await self._poll(source)
                if not source.follow:
                    return
            except Exception as error:
                problem = str(error) if isinstance(error, SegueError) else f"{type(error).__name__}: {error}"
                log.warning("source %s: %s", source.name, problem)
                await self._problem(source, problem)
                await asyncio.sleep(max(TROUBLED, source.every) if source.url else TROUBLED)

    async def _problem(self, source: Source, problem: str) -> None:
        try:
            await self.database.run(
                lambda connection: store.note_source(connection, source.name, place=None, problem=problem)
            )
        except SegueError as error:
            log.error("source %s: %s", source.name, error)

    async def _grow(self, source: Source) -> None:
        place = await self.database.run(lambda connection: store.place_of(connection, source.name))
        more = read_more(source, place, most=AT_ONCE)
        found = False
        while (some := await asyncio.to_thread(next, more, None)) is not None:
            found = True
            await self.take(made_batch(source.name, some.rows, source.rows(), refused=some.refused, place=some.place))
        if not found and source.follow:
            await asyncio.sleep(WATCHED)

    async def _poll(self, source: Source) -> None:
        poller = Poller(source)
        while True:
            place = await self.database.run(lambda connection: store.place_of(connection, source.name))
            found = await asyncio.to_thread(poller.look, place)
            if found.problem is not None:
                log.warning("source %s: %s", source.name, found.problem)
                await self._problem(source, found.problem)
            else:
                for start in range(0, max(1, len(found.rows)), AT_ONCE):
                    rows = found.rows[start : start + AT_ONCE]
                    last = start + AT_ONCE >= len(found.rows)
                    refused, after = (found.refused, found.place) if last else ([], None)
                    await self.take(made_batch(source.name, rows, source.rows(), refused=refused, place=after))
            await asyncio.sleep(found.wait)

    async def _lines(self, source: Source) -> None:
        """Read standard input: lines of JSON, or of text. It cannot be read again, so a batch that could not be written
        is written later."""
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=10 * AT_ONCE)

        def pump() -> None:
            while (line := next_line(sys.stdin.buffer)) is not None:
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

        threading.Thread(target=pump, daemon=True).start()
        ended = False
        while not ended:
            some = [await lines.get()]
            while len(some) < AT_ONCE and not lines.empty():
                some.append(lines.get_nowait())
            ended = None in some
            found = [row_of(line, source.encoding) for line in some if line is not None and line.strip()]
            refused = [bad for row in found if (bad := bad_reason(row)) is not None]
            rows = [row for row in found if bad_reason(row) is None]
            batch = made_batch(source.name, rows, source.rows(), refused=refused)
            while not await self._taken_or_not(source, batch):
                await asyncio.sleep(TROUBLED)

    async def _taken_or_not(self, source: Source, batch: Batch) -> bool:
        """Return True if a batch was written; otherwise note why it was not."""
        try:
            await self.take(batch)
        except SegueError as error:
            log.warning("source %s: %s", source.name, error)
            await self._problem(source, str(error))
            return False
        return True

    # ---------------------------------------------------------------------------------------------------------- clocks

    async def _clock(self) -> None:
        while True:
            await asyncio.sleep(CLOCK)
            now = time.time()

            def move(connection: Connection, now: float = now) -> list[int]:
                newest = store.get_state(connection, NEWEST)
                if newest is None or not now - DAY < newest < now:
                    return []
                return self._stream.move(connection, now)

            async with self._turn:
                try:
                    if await self._write(move):
                        self.wake()
                except SegueError as error:
                    log.error("the clock did not move: %s", error)

    async def _follow_prices(self, path: Path) -> None:
        """Read the prices again whenever their file has changed; one that cannot be read changes nothing."""
        seen = file_state(path)
        while True:
            await asyncio.sleep(CLOCK)
            if (now := file_state(path)) == seen:
                continue
            seen = now
            try:
                self.prices = await asyncio.to_thread(read_prices, path)
            except (SegueError, OSError) as error:
                log.warning("the prices stay as they were: %s", error)

    async def _use_model(self, name: str) -> None:
        model = await asyncio.to_thread(read_model, self.folder / MODELS / name)
        self.model, self.about, self.model_name = model, read_about(self.folder / MODELS / name), name

    async def list_names(self, names: Mapping[str, str]) -> None:
        """Add names to the list, which is used for all texts from now on."""
        async with self._listing:
            name = await asyncio.to_thread(take_names, self.folder, names)
            await self._use_model(name)

    # --------------------------------------------------------------------------------------------------------- waiting

    def wake(self) -> None:
        """Wake everything that waits for updates."""
        for event in self._listening:
            event.set()
        for sender in self._senders:
            sender.wake()

    def listen(self) -> asyncio.Event:
        """Return an event that is set on updates; release it with `unlisten`."""
        if len(self._listening) >= self.settings.max_streams:
            raise busy()
        event = asyncio.Event()
        self._listening.add(event)
        return event

    def unlisten(self, event: asyncio.Event) -> None:
        """Release an event of `listen`."""
        self._listening.discard(event)
