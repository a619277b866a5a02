"""Alarms by mail: rows of the table `mails`, written with the alarm and sent until the mail server accepts them.

Each mail has a message id that is the same at every attempt, so that a receiver can recognise a repeated one. Addresses
and server come from the operator's configuration.
"""

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate

from segue.apps.database import Database
from segue.apps.monitor.sources import Mail
from segue.apps.outbox import TIMEOUT, Outbox, deadline


def mails(database: Database, mail: Mail, *, password: str) -> Outbox:
    """Return the outbox that sends the mails of a database."""
    return Outbox(
        database,
        "mails",
        lambda id, subject, body: _send(mail, id, subject, body, password=password),
        in_order=False,
    )


def _send(mail: Mail, id: str, subject: str, body: str, *, password: str) -> str | None:
    """Send a mail; return None, or what went wrong."""
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
        with server, deadline(lambda: server.sock):
            if mail.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if mail.user and mail.security != "none":
                server.login(mail.user, password)
            server.send_message(message)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        return str(error)[:200] or type(error).__name__
    return None
