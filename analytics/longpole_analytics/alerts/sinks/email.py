"""Mail, over SMTP: text and HTML of the same content, one thread for each alert."""

import smtplib
import socket
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from html import escape
from ipaddress import ip_address
from typing import Final

from longpole.errors import UsageError
from longpole_analytics.alerts.event import Event, fields, links
from longpole_analytics.alerts.net import TIMEOUT_S, Gate, Later, Never
from longpole_analytics.alerts.sinks.base import Options, Post, SinkKind, cut

_MAX_SUBJECT: Final = 200
_DOMAIN: Final = "longpole.invalid"
_PERMANENT: Final = 500


def _send(post: Post, options: Options, gate: Gate) -> None:
    deliver(compose(post, str(options["from"]), _people(options["to"])), options, gate)


def deliver(mail: EmailMessage, options: Options, gate: Gate) -> None:
    """Hand a mail to the sink's server.

    Raises:
        Later: it may be taken later.
        Never: it is refused.
    """
    host, port = str(options["host"]), int(options["port"] or 0)
    address = gate.resolve(host, port)
    try:
        with _Smtp(host, port, address) as server:
            _secure(server, options, is_loopback=ip_address(address).is_loopback)
            server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        raise _failed(host, min(codes, default=0)) from None
    except smtplib.SMTPResponseException as error:
        raise _failed(host, error.smtp_code) from None
    except (smtplib.SMTPException, OSError, ssl.SSLError) as error:
        raise Later(f"{host}: {type(error).__name__}") from None


def _failed(host: str, code: int) -> Later | Never:
    said = f"{host} answered {code}"
    return Never(said) if code >= _PERMANENT else Later(said)


def _secure(server: smtplib.SMTP, options: Options, *, is_loopback: bool) -> None:
    """Encrypt, then log in."""
    server.ehlo()
    if server.has_extn("starttls"):
        server.starttls(context=ssl.create_default_context())
        server.ehlo()
    elif not is_loopback:
        raise Never(f"{options['host']} offers no STARTTLS: nothing is sent in the clear")
    if options["username"]:
        server.login(str(options["username"]), str(options["password"] or ""))


def compose(post: Post, sender: str, to: list[str]) -> EmailMessage:
    """The mail; a line's end in a name is none in a header."""
    event = post.event
    thread = f"<{event['fingerprint']}.{event['id']}@{_DOMAIN}>"
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, ", ".join(to)
    mail["Subject"] = cut(" ".join(event["summary"].split()), _MAX_SUBJECT)
    mail["Date"] = formatdate(post.now_s)
    mail["Message-ID"] = f"<{event['fingerprint']}.{event['status']}.{int(post.now_s)}@{_DOMAIN}>"
    mail["References"] = mail["In-Reply-To"] = thread
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n".join(_lines(event)))
    mail.add_alternative(_html(event), subtype="html")
    return mail


def _lines(event: Event) -> list[str]:
    told = [event["summary"], ""]
    told += [f"{name}: {text}" for name, text in fields(event)]
    if event["next_step"]:
        told += ["", f"next step: {event['next_step']}"]
    return [*told, "", *(f"{name}: {url}" for name, url in links(event)), ""]


def _html(event: Event) -> str:
    rows = "".join(
        f"<tr><th align=left>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in fields(event)
    )
    step = f"<p>Next step: {escape(event['next_step'])}</p>" if event["next_step"] else ""
    ways = " &middot; ".join(
        f'<a href="{escape(url)}">{escape(name)}</a>'
        for name, url in links(event)
        if url.startswith(("http://", "https://"))
    )
    return f"<p><b>{escape(event['summary'])}</b></p><table>{rows}</table>{step}<p>{ways}</p>"


class _Smtp(smtplib.SMTP):
    """Talks to the address that was checked; TLS keeps the name."""

    def __init__(self, host: str, port: int, address: str) -> None:
        self._address = address
        super().__init__(host, port, timeout=TIMEOUT_S)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((self._address, port), timeout)


def _people(value: object) -> list[str]:
    return [part.strip() for part in str(value).split(",") if part.strip()]


def _check(options: Options) -> None:
    for person in (str(options["from"]), *_people(options["to"])):
        if "@" not in person or any(char.isspace() and char != " " for char in person):
            raise UsageError("[alerts.sinks] from, to: expected addresses, as team@example.com")


SINK = SinkKind(
    {"host": str, "port": 587, "username": None, "password": None, "from": str, "to": str},
    _send,
    _check,
)
