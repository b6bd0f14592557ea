"""ClickHouse's HTTP interface, as far as the client uses it, over the engine in this process.

    python door.py FOLDER [PORT]

For tests and measurements: it passes statements, settings, parameters and rows on, asks for a
user's word, and can be told to fail. Run as a program it is a server of its own, which can be
stopped, killed, and started again on its folder and its port; it says its address on stdout.
"""

import base64
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

USER, WORD = "ann", "s3cret-Word"
_INSERT = re.compile(
    r"\s*INSERT INTO (?P<table>\S+)\s*\((?P<names>[^)]*)\)\s*FORMAT (?P<form>\w+)\s*"
)
_OWN = frozenset(("query", "database", "query_id", "session_id", "client_protocol_version"))
_SKIPPED = frozenset(("compress", "enable_http_compression", "send_progress_in_http_headers"))


class Door:
    """A server that runs; ``failure`` is answered to everything while it is set.

    While it is not ``is_open`` it hangs up on whoever asks.
    """

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.is_open = True
        self.failure: str | None = None
        self.asked: list[str] = []


@contextmanager
def serving(folder: str | None = None, port: int = 0) -> Iterator[Door]:
    client = clickhouse_connect.get_client(interface="chdb", path=folder)
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            self.handle_one(self.rfile.read(length))

        def do_GET(self) -> None:
            self.handle_one(b"")

        def handle_one(self, body: bytes) -> None:
            given = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
                given |= dict(parse_qsl(body.decode(), keep_blank_values=True))
                body = b""
            query = given.get("query", "") or body.decode(errors="replace")
            door.asked.append(query)
            if not door.is_open:
                self.close_connection = True
            elif not self.is_known():
                self.answer(403, b"Code: 516. DB::Exception: ann: Authentication failed. (X)")
            elif door.failure is not None:
                self.answer(500, door.failure.encode())
            else:
                try:
                    with lock:
                        found = run(query, body if "query" in given else b"", given)
                    self.answer(200, found)
                except ClickHouseError as error:
                    self.answer(500, str(error).encode())

        def is_known(self) -> bool:
            basic = base64.b64encode(f"{USER}:{WORD}".encode()).decode()
            return self.headers.get("authorization") == f"Basic {basic}" or (
                self.headers.get("x-clickhouse-key") == WORD
            )

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.send_header("x-clickhouse-summary", "{}")
            if status != 200:
                code = re.search(rb"Code: (\d+)", body)
                self.send_header("x-clickhouse-exception-code", (code or [b"", b"1"])[1].decode())
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    def run(query: str, body: bytes, given: dict[str, str]) -> bytes:
        if database := given.get("database"):
            client.command(f"USE {database}")
        for name, value in given.items():
            if name.startswith("param_"):
                quoted = value.replace("\\", "\\\\").replace("'", "\\'")
                client.command(f"SET {name} = '{quoted}'")
        settings = {
            name: value
            for name, value in given.items()
            if name not in _OWN | _SKIPPED and not name.startswith("param_") and name != "readonly"
        }
        found = _INSERT.match(query)
        if found is not None and body:
            names = [name.strip(" `") for name in found["names"].split(",")]
            client.raw_insert(found["table"], names, body, settings, fmt=found["form"])
            return b""
        return client.raw_query(query, settings=settings)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    door = Door(server.server_port)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield door
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        client.close()


def main() -> None:
    """Serve until stdin ends or the process is killed."""
    folder, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with serving(folder, port) as door:
        print(door.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
