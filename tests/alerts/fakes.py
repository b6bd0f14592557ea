"""Servers that speak the sinks' protocols as those who run them do, on ports of their own."""

import json
import socket
import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Got(NamedTuple):
    path: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that hangs up is no news."""


@contextmanager
def serving(answer):
    """A server that says what ``answer`` says; yields its address and what came to it."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers, said = answer(got[-1])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def webhook(_got):
    return 204, {}, b""


def slack(got):
    """Slack's incoming webhook: what it refuses, by its documented limits."""
    message = json.loads(got.body)
    blocks = message.get("blocks", [])
    is_good = len(blocks) <= 50 and isinstance(message.get("text"), str)
    for block in blocks:
        if block["type"] == "header":
            is_good &= block["text"]["type"] == "plain_text" and len(block["text"]["text"]) <= 150
        elif block["type"] == "section":
            texts = [block["text"]] if "text" in block else block["fields"]
            most = 3000 if "text" in block else 2000
            is_good &= 0 < len(texts) <= 10 and all(0 < len(t["text"]) <= most for t in texts)
        elif block["type"] == "actions":
            is_good &= 0 < len(block["elements"]) <= 25
            for button in block["elements"]:
                is_good &= len(button["text"]["text"]) <= 75 and len(button["url"]) <= 3000
        else:
            is_good &= block["type"] == "context" and len(block["elements"]) <= 10
    return (200, {}, b"ok") if is_good else (400, {}, b"invalid_blocks")


class PagerDuty:
    """Events API v2: incidents by their key."""

    def __init__(self):
        self.incidents = {}
        self.log = []

    def __call__(self, got):
        event = json.loads(got.body)
        action, key = event.get("event_action"), event.get("dedup_key")
        if event.get("routing_key") != "R" * 32 or not key:
            return 400, {}, b'{"status":"invalid event"}'
        if action == "trigger":
            payload = event["payload"]
            if payload["severity"] not in ("critical", "error", "warning", "info"):
                return 400, {}, b"{}"
            if not payload["summary"] or len(payload["summary"]) > 1024 or not payload["source"]:
                return 400, {}, b"{}"
            if not all(isinstance(text, str) for text in payload["custom_details"].values()):
                return 400, {}, b"{}"
            if self.incidents.get(key) != "acknowledged":
                self.incidents[key] = "triggered"
        elif key in self.incidents:
            self.incidents[key] = {"acknowledge": "acknowledged", "resolve": "resolved"}[action]
        self.log.append((action, key))
        return 202, {}, json.dumps({"status": "success", "dedup_key": key}).encode()


@contextmanager
def mailing(refuse=()):
    """An SMTP server without TLS; yields its port and the mails that came."""
    mails = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            say = lambda text: self.wfile.write(text.encode() + b"\r\n")  # noqa: E731
            say("220 fake ESMTP")
            while line := self.rfile.readline():
                word = line[:4].upper().strip()
                if word in (b"EHLO", b"HELO"):
                    say("250 fake")
                elif word == b"DATA":
                    say("354 go on")
                    parts = []
                    while (part := self.rfile.readline()) != b".\r\n":
                        parts.append(part)
                    mails.append(b"".join(parts))
                    say("250 taken")
                elif word == b"QUIT":
                    say("221 bye")
                    return
                elif word == b"RCPT" and refuse:
                    say(refuse[0])
                else:
                    say("250 fine")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1], mails
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def silent():
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
