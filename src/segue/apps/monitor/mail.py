"""Alarms by mail: rows of the table `mails`, written with the alarm, sent until the mail server takes them.

Each mail has an id of its own, the same at every try, so that a receiver can tell a repeated one. Addresses and the
server are the operator's.
"""

import asyncio
import logging
import smtplib
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.utils import formatdate

from segue.apps.database import Connection, Database
from segue.apps.monitor.sources import Mail
from segue.apps.webhooks import MOST_TRIES, TIMEOUT, WAITS

log = logging.getLogger("segue.apps")


class Mails:
    """Sends what waits, as long as it runs."""

    def __init__(self, database: Database, mail: Mail, *, password: str) -> None:
        self._database, self._mail, self._password = database, mail, password
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segue-mail")
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins with what is left from before."""
        self._task = asyncio.create_task(self._loop())

    def wake(self) -> None:
        """There is something new."""
        self._more.set()

    async def stop(self) -> None:
        """What was not sent stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _loop(self) -> None:
        while True:
            self._more.clear()
            try:
                for number, id, subject, body, tries in await self._database.run(_due):
                    await self._deliver(number, id, subject, body, tries)
            except Exception as error:  # whatever it is, the next mails are sent
                log.error("mail: %s: %s", type(error).__name__, error)
            try:
                async with asyncio.timeout(1.0):
                    await self._more.wait()
            except TimeoutError:
                pass

    async def _deliver(self, number: int, id: str, subject: str, body: str, tries: int) -> None:
        loop = asyncio.get_running_loop()
        problem = await loop.run_in_executor(self._pool, self._send, id, subject, body)
        now = time.time()

        def note(connection: Connection) -> None:
            if problem is None:
                connection.execute("UPDATE mails SET delivered = ? WHERE number = ?", (now, number))
                return
            wait = WAITS[min(tries, len(WAITS) - 1)]
            given_up = now if tries + 1 >= MOST_TRIES else None
            connection.execute(
                "UPDATE mails SET tries = tries + 1, next_try = ?, given_up = ? WHERE number = ?",
                (now + wait, given_up, number),
            )

        await self._database.run(note)
        if problem is not None:
            log.warning("mail %s was not taken: %s", id, problem)

    def _send(self, id: str, subject: str, body: str) -> str | None:
        """None, or what went wrong."""
        mail = self._mail
        message = EmailMessage()
        message["Subject"] = subject
        message["From"], message["To"] = mail.sender, ", ".join(mail.to)
        message["Date"] = formatdate(usegmt=True)
        message["Message-ID"] = f"<{id}@{mail.sender.partition('@')[2]}>"
        message.set_content(body)
        try:
            if mail.security == "tls":
                server: smtplib.SMTP = smtplib.SMTP_SSL(
                    mail.host, mail.port, timeout=TIMEOUT, context=ssl.create_default_context()
                )
            else:
                server = smtplib.SMTP(mail.host, mail.port, timeout=TIMEOUT)
            with server:
                if mail.security == "starttls":
                    server.starttls(context=ssl.create_default_context())
                if mail.user and mail.security != "none":
                    server.login(mail.user, self._password)
                server.send_message(message)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return str(error)[:200] or type(error).__name__
        return None


def _due(connection: Connection) -> list[tuple[int, str, str, str, int]]:
    return connection.execute(
        "SELECT number, id, subject, body, tries FROM mails WHERE delivered IS NULL AND given_up IS NULL AND "
        "next_try <= ? ORDER BY number LIMIT 20",
        (time.time(),),
    ).fetchall()
