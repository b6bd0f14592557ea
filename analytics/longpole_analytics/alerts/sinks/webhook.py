"""Any program that takes the event itself over HTTP, signed so that it can tell whose it is."""

import hashlib
import hmac

from longpole_analytics.alerts.net import Gate
from longpole_analytics.alerts.sinks.base import Options, Post, SinkKind, encoded, needs_url


def _send(post: Post, options: Options, gate: Gate) -> None:
    body = encoded(post.event)
    at = str(int(post.now_s))
    headers = {"content-type": "application/json", "x-longpole-timestamp": at}
    if options["secret"]:
        headers["x-longpole-signature"] = signature(str(options["secret"]), at, body)
    gate.post(str(options["url"]), body, headers)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What ``X-Longpole-Signature`` says: HMAC-SHA-256 of ``timestamp.body``."""
    told = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={told.hexdigest()}"


SINK = SinkKind({"url": str, "secret": None}, _send, needs_url)
