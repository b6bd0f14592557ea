"""Brings a report to a sink of the alerts: by mail, to Slack, or signed to any program."""

import json
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final

from longpole_analytics.alerts.net import Gate, Later
from longpole_analytics.alerts.sinks import email, webhook
from longpole_analytics.alerts.sinks.base import Options, Post, Sink, cut, encoded
from longpole_analytics.report.build import first_lines

_MAX_LINE: Final = 2900
_MAX_HEADER: Final = 150


def send(kind: str, sink: Sink, folder: Path, gate: Gate, now_s: float) -> None:
    """Send the report that stands in a folder; returns when it has arrived.

    Args:
        kind: the kind of the sink.
        sink: who gets it.
        folder: where ``report.json`` and its other forms are.
        gate: the way out.
        now_s: the moment, seconds since the Unix epoch.

    Raises:
        Later: it may arrive later.
        Never: it is refused.
        OSError: the files are gone.
    """
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if kind == "webhook":
        webhook.SINK.send(Post(document, False, now_s), sink.options, gate)
    elif kind == "slack":
        answer = gate.post(
            str(sink.options["url"]),
            encoded(slack_message(document, folder)),
            {"content-type": "application/json; charset=utf-8"},
            accept=(200,),
        )
        if answer.text.strip() != "ok":
            raise Later("slack did not say ok")
    else:
        email.deliver(compose(document, folder, sink.options, now_s), sink.options, gate)


def slack_message(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The first lines, and where the whole report is; no text of it can mention, link or format."""

    def plain(text: str, most: int) -> dict[str, Any]:
        return {"type": "plain_text", "text": cut(text, most), "emoji": False}

    title = str(document["title"])
    lines = "\n".join(first_lines(document))
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": plain(title, _MAX_HEADER)},
        {"type": "section", "text": plain(lines, _MAX_LINE)},
    ]
    dashboard = document.get("dashboard")
    if dashboard:
        button = {"type": "button", "text": plain("dashboard", 75), "url": f"{dashboard}/overview"}
        blocks.append({"type": "actions", "elements": [button]})
    where = plain(f"the whole report: {folder / 'report.html'}", _MAX_LINE)
    blocks.append({"type": "context", "elements": [where]})
    safe = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": safe, "blocks": blocks}


def compose(document: dict[str, Any], folder: Path, options: Options, now_s: float) -> EmailMessage:
    """The report as a mail: text and HTML of the same content."""
    mail = EmailMessage()
    mail["From"], mail["To"] = str(options["from"]), str(options["to"])
    mail["Subject"] = " ".join(str(document["title"]).split())
    mail["Date"] = formatdate(now_s)
    name = f"{document['project']}.{document['window']['since_ns']}"
    mail["Message-ID"] = f"<report.{name}@longpole.invalid>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content((folder / "report.md").read_text(encoding="utf-8"))
    html = (folder / "report.html").read_text(encoding="utf-8")
    mail.add_alternative(html, subtype="html")
    return mail
