"""What the first load of the Overview sends."""

from __future__ import annotations

from typing import Any

from benchmarks.bars import Bar
from benchmarks.dashboard.bench import Bench
from benchmarks.dashboard.chromium import OVERVIEW, load, window

_MB = 1e6


def wire(bench: Bench) -> list[Bar]:
    """Megabytes received by a fresh profile, HTTP as it was sent, the websocket unpacked."""
    http: list[float] = []
    messages: list[float] = []

    def took_message(event: dict[str, Any]) -> None:
        # binary ones are told in base64
        is_binary = event["response"]["opcode"] == 2
        size = len(event["response"]["payloadData"])
        messages.append(size * 3 / 4 if is_binary else size)

    with bench.large() as served, window(bench.browser) as page:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda event: http.append(event["encodedDataLength"]))
        session.on("Network.webSocketFrameReceived", took_message)
        load(page, f"{served.url}/?range=all", OVERVIEW)
        page.wait_for_load_state("networkidle")
    facts: dict[str, float | str] = {
        "http_mb": sum(http) / _MB,
        "num_http": len(http),
        "websocket_at_most_mb": sum(messages) / _MB,
        "num_messages": len(messages),
    }
    return [Bar("wire", (sum(http) + sum(messages)) / _MB, "MB", "<", 4.0, facts)]
