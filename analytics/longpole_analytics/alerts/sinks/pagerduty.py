"""PagerDuty, Events API v2."""

from typing import Any, Final

from longpole_analytics.alerts.event import fields, links
from longpole_analytics.alerts.net import Gate
from longpole_analytics.alerts.sinks.base import Options, Post, SinkKind, cut, encoded, needs_url

_ACTIONS: Final = {"firing": "trigger", "ack": "acknowledge", "resolved": "resolve"}
_SEVERITIES: Final = {"page": "critical", "ticket": "warning"}
_MAX_SUMMARY: Final = 1024


def _send(post: Post, options: Options, gate: Gate) -> None:
    event = post.event
    action = _ACTIONS[event["status"]]
    document: dict[str, Any] = {
        "routing_key": options["routing_key"],
        "event_action": action,
        "dedup_key": event["fingerprint"],
    }
    if action == "trigger":
        document |= {
            "client": "longpole",
            "client_url": event["links"]["explore"],
            "links": [{"href": url, "text": name} for name, url in links(event)],
            "payload": {
                "summary": cut(event["summary"], _MAX_SUMMARY),
                "source": f"longpole/{event['project']}",
                "severity": _SEVERITIES[event["severity"]],
                "timestamp": event["started_at"],
                "component": event["slo"]["id"],
                "class": "slo_burn",
                "custom_details": {
                    **{name.replace(" ", "_"): text for name, text in fields(event)},
                    "next_step": event["next_step"] or "",
                },
            },
        }
    url = str(options["url"])
    gate.post(url, encoded(document), {"content-type": "application/json"}, accept=(202,))


SINK = SinkKind(
    {"routing_key": str, "url": "https://events.pagerduty.com/v2/enqueue"}, _send, needs_url
)
