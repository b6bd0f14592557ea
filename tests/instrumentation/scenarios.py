"""The scenarios of the fake providers, by model name, and a server that plays them.

A subclass says how its protocol writes each step.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fake_server import WAIT_S, FakeServer, Out, Received

META, TEXT, THINK, TOOL, FINISH, ERROR = "meta", "text", "think", "tool", "finish", "error"
CUT, QUIT = "cut", "quit"

Step = tuple[float, str, str]
"""Seconds to wait, what comes then, and its text (of a tool call its arguments)."""


def _texts(num: int, wait_s: float = 0.002) -> list[Step]:
    return [(wait_s, TEXT, f"w{i} ") for i in range(num)]


START: Step = (0.0, META, "")
STOP: Step = (0.0, FINISH, "stop")

STREAMS: dict[str, list[Step]] = {
    "plain": [START, *_texts(10), STOP],
    "early-meta": [START, (WAIT_S, TEXT, "a"), *_texts(3), STOP],
    "late-headers": [START, *_texts(3), STOP],
    "one-token": [START, *_texts(1), STOP],
    "tool": [START, (0.01, TOOL, '{"q": 1}'), (0.0, FINISH, "tool")],
    "reasoning": [
        START,
        (0.0, THINK, "let me see"),
        (0.05, THINK, "yes"),
        *_texts(2, 0.02),
        STOP,
    ],
    "cut": [START, *_texts(3), (0.0, CUT, "")],
    "error-event": [START, *_texts(3), (0.0, ERROR, "boom")],
    "no-finish": [START, *_texts(3), (0.0, QUIT, "")],
    "no-usage": [START, *_texts(3), STOP],
    "slow": [START, *_texts(200, 0.02), STOP],
}
STREAMS["retry-twice"] = STREAMS["plain"]

FAILURES = {"unavailable": 503, "bad-request": 400}
RETRY = {"Retry-After-Ms": "20"}


class Scripted(FakeServer):
    """Plays the scenario that the request's model names."""

    content_type = "text/event-stream"

    def asked(self, request: Received) -> tuple[str, bool]:
        """The model, and whether the answer streams."""
        raise NotImplementedError

    def pieces(self, model: str, what: str, text: str, path: str) -> list[bytes]:
        """One step as the protocol writes it."""
        raise NotImplementedError

    def whole(self, model: str, path: str) -> dict[str, Any]:
        """An answer that does not stream."""
        raise NotImplementedError

    def failure(self, status: int) -> dict[str, Any]:
        """The body of an error."""
        return {"message": "no"}

    def headers(self) -> dict[str, str]:
        """Headers of every good answer."""
        return {}

    async def respond(self, request: Received, out: Out) -> None:
        """Answer one request."""
        model, is_streamed = self.asked(request)
        status = 429 if model == "retry-twice" and self.tries(model) % 3 else FAILURES.get(model)
        if status is not None:
            await out.json(self.failure(status), status, RETRY)
            return
        if model == "late-headers":
            await asyncio.sleep(WAIT_S)
        if not is_streamed:
            await out.json(self.whole(model, request.path), headers=self.headers())
            return
        out.begin(self.content_type, self.headers())
        for wait_s, what, text in STREAMS[model]:
            await asyncio.sleep(wait_s)
            if what == CUT:
                await out.cut()
            if what == QUIT:
                break
            for piece in self.pieces(model, what, text, request.path):
                await out.send(piece)
            if what == ERROR:
                break
        await out.end()
