"""Slack, by an incoming webhook."""

from typing import Any, Final

from longpole_analytics.alerts.event import fields, links
from longpole_analytics.alerts.net import Gate, Later
from longpole_analytics.alerts.sinks.base import Options, Post, SinkKind, cut, encoded, needs_url

_MAX_HEADER: Final = 150
_MAX_FIELD: Final = 2000
_MAX_SECTION: Final = 3000
_MAX_BUTTON: Final = 75
_MAX_URL: Final = 3000
_MAX_FIELDS: Final = 10
_MAX_BUTTONS: Final = 3


def _send(post: Post, options: Options, gate: Gate) -> None:
    answer = gate.post(
        str(options["url"]),
        encoded(message(post)),
        {"content-type": "application/json; charset=utf-8"},
        accept=(200,),
    )
    if answer.text.strip() != "ok":
        raise Later("slack did not say ok")


def message(post: Post) -> dict[str, Any]:
    """The event as blocks; no text of it can mention, link or format."""
    event = post.event
    pairs = fields(event)[:_MAX_FIELDS]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(event["summary"], _MAX_HEADER)},
        {"type": "section", "fields": [_plain(f"{n}: {text}", _MAX_FIELD) for n, text in pairs]},
    ]
    if event["next_step"] and event["status"] == "firing":
        text = _plain(f"Next step: {event['next_step']}", _MAX_SECTION)
        blocks.append({"type": "section", "text": text})
    buttons = [
        {"type": "button", "text": _plain(name, _MAX_BUTTON), "url": url}
        for name, url in links(event)
        if len(url) <= _MAX_URL
    ]
    if buttons:
        blocks.append({"type": "actions", "elements": buttons[:_MAX_BUTTONS]})
    ids = f"{event['project']} / {event['fingerprint']} / {event['id']}"
    blocks.append({"type": "context", "elements": [_plain(ids, _MAX_FIELD)]})
    return {"text": _escaped(event["summary"]), "blocks": blocks}


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": cut(text, most), "emoji": False}


def _escaped(text: str) -> str:
    """Text that Slack reads as text: its three control characters written out."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


SINK = SinkKind({"url": str}, _send, needs_url)
