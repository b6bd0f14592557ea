"""What a load is sent to without a network."""

import json
from typing import Any

from longpole.call import StreamState
from longpole_engine.load.client import Answer, now_ns


class Keeps:
    """A target that answers at once and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def ask(self, body: bytes, *_: Any, **__: Any) -> Answer:
        self.asked.append(json.loads(body))
        answer = Answer(now_ns())
        answer.call.end(now_ns(), StreamState.COMPLETED)
        return answer

    def close(self) -> None:
        pass
