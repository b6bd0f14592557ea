"""The many other services that the library Apprise knows (extra ``apprise``).

Apprise makes its own connections, so the list of allowed hosts does not hold for them.
"""

from typing import Any, Final

from longpole_analytics.alerts.event import fields, links
from longpole_analytics.alerts.net import Gate, Later, Never
from longpole_analytics.alerts.sinks.base import Options, Post, SinkKind

_TYPES: Final = {"firing": "failure", "ack": "info", "resolved": "success"}


def _send(post: Post, options: Options, gate: Gate) -> None:
    try:
        import apprise  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise Never("apprise is not installed: pip install 'longpole[apprise]'") from error
    event = post.event
    lines = [f"{name}: {text}" for name, text in fields(event)]
    lines += [event["next_step"]] if event["next_step"] else []
    lines += [f"{name}: {url}" for name, url in links(event)]
    service: Any = apprise.Apprise()
    if not service.add(str(options["url"])):
        raise Never("apprise does not know such an address")
    kind = _TYPES[event["status"]]
    if not service.notify(
        title=event["summary"], body="\n".join(lines), notify_type=kind, body_format="text"
    ):
        raise Later("apprise could not send")


SINK = SinkKind({"url": str}, _send)
