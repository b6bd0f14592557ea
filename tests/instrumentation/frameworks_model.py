"""A model for agents, behind OpenAI's protocol: it calls the first tool once, then answers.

Whoever is asked without tools, or after a tool's result, answers with text. Each answer has an id
of its own, as a provider's have.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

TEXT = "It is raining in Oslo."
SECRET = "secret city"
USAGE = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
_ids = count(1)


class Model:
    """The server; ``asked`` holds the requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.asked.append(asked)
                model.headers.append({k.lower(): v for k, v in self.headers.items()})
                is_stream = bool(asked.get("stream"))
                body = b"".join(_events(asked)) if is_stream else _whole(asked)
                self.send_response(200)
                kind = "text/event-stream" if is_stream else "application/json"
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    @contextmanager
    def serving(self) -> Iterator["Model"]:
        """Serve inside the block."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(10)


def _message(asked: dict[str, Any]) -> tuple[dict[str, Any], str]:
    tools = asked.get("tools") or []
    if not tools or any(message["role"] == "tool" for message in asked["messages"]):
        return {"role": "assistant", "content": TEXT}, "stop"
    function = tools[0]["function"]
    names = list(function["parameters"].get("properties", {}))
    arguments = json.dumps(dict.fromkeys(names, SECRET))
    call = {
        "id": f"call_{next(_ids)}",
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def _whole(asked: dict[str, Any]) -> bytes:
    message, reason = _message(asked)
    return json.dumps(
        {
            "id": f"chatcmpl-{next(_ids)}",
            "object": "chat.completion",
            "created": 1,
            "model": "fake-1",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": USAGE,
        }
    ).encode()


def _events(asked: dict[str, Any]) -> Iterator[bytes]:
    message, reason = _message(asked)
    for index, call in enumerate(message.get("tool_calls", ())):
        call["index"] = index
    shared = {"id": f"chatcmpl-{next(_ids)}", "object": "chat.completion.chunk", "created": 1}
    steps = [({"role": "assistant", "content": ""}, None), (message, None), ({}, reason)]
    for delta, finish in steps:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {**shared, "model": "fake-1", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    chunk = {**shared, "model": "fake-1", "choices": [], "usage": USAGE}
    yield f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
