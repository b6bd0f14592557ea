"""Prometheus Alertmanager, API v2.

Labels make an alert's identity there, so nothing that changes stands in them. Alertmanager takes
an alert for over when it has not heard of it for a while; so it hears of it every minute.
"""

from datetime import UTC, datetime
from typing import Any, Final

from longpole_analytics.alerts.event import fields
from longpole_analytics.alerts.net import Gate
from longpole_analytics.alerts.sinks.base import Options, Post, SinkKind, encoded, needs_url

REFRESH_S: Final = 60.0
_LASTS_S: Final = 300.0
_PATH: Final = "/api/v2/alerts"


def _send(post: Post, options: Options, gate: Gate) -> None:
    if post.event["status"] == "ack":
        return  # it has no such thing; silences are made there
    headers = {"content-type": "application/json"}
    if options["token"]:
        headers["authorization"] = f"Bearer {options['token']}"
    url = str(options["url"]).rstrip("/") + _PATH
    gate.post(url, encoded([_alert(post)]), headers, accept=(200,))


def _alert(post: Post) -> dict[str, Any]:
    event = post.event
    labels = {
        "alertname": "LongpoleSLOBurn",
        "slo": event["slo"]["id"],
        "severity": event["severity"],
        "project": event["project"],
        "route": event["slo"].get("route") or "",
    }
    told = {name.replace(" ", "_"): text for name, text in fields(event)}
    annotations = {
        **told,
        "summary": event["summary"],
        "next_step": event["next_step"] or "",
        "runbook": event["links"]["runbook"] or "",
        "fingerprint": event["fingerprint"],
        "traces": " ".join(event["links"]["traces"]),
    }
    is_over = event["status"] == "resolved"
    ends_s = post.now_s if is_over else post.now_s + _LASTS_S
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": event["started_at"],
        "endsAt": datetime.fromtimestamp(ends_s, UTC).isoformat(),
        "generatorURL": event["links"]["explore"],
    }


SINK = SinkKind({"url": str, "token": None}, _send, needs_url, refresh_s=REFRESH_S)
