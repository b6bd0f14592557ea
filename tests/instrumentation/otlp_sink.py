"""A local receiver of spans that speaks OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """A tiny OTLP/HTTP receiver."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append(ExportTraceServiceRequest.FromString(body))
                outer.headers.append(dict(self.headers))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @classmethod
    @contextmanager
    def serving(cls) -> Iterator[Self]:
        """The receiver, running inside the block."""
        made = cls()
        thread = threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.server.shutdown()
            made.server.server_close()
            thread.join()

    def spans(self) -> list[Any]:
        """All spans it was sent, in the order they came."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, str]:
        """Attributes of the first resource."""
        attributes = self.requests[0].resource_spans[0].resource.attributes
        return {item.key: item.value.string_value for item in attributes}
