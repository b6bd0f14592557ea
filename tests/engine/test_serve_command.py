"""``longpole engine serve`` as a process."""

import gzip
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

COMMAND = [sys.executable, "-c", "from longpole.cli import main; main()", "engine", "serve"]


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[str]]]:
    """A real OTLP/HTTP door; keeps the names of the spans that arrive."""
    names: list[str] = []

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            message = ExportTraceServiceRequest.FromString(body)
            for resource in message.resource_spans:
                for scope in resource.scope_spans:
                    names.extend(span.name for span in scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", names
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "LONGPOLE_ENGINE_OTLP_ENDPOINT"]
)
def test_a_signal_drains_flushes_and_exits_with_success(
    receiver: tuple[str, list[str]], variable: str
) -> None:
    url, names = receiver
    with subprocess.Popen(
        [*COMMAND, "--model", "tiny", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, variable: url},
    ) as process:
        assert process.stderr is not None
        ready = next(line for line in process.stderr if line.startswith("engine ready"))
        assert "model 'tiny'" in ready
        address = next(word for word in ready.split() if word.startswith("http://"))
        body = {
            "model": "tiny",
            "prompt": "go",
            "max_tokens": 400,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = list(lines)  # what is in progress finishes
        assert rest[-2] == "data: [DONE]"
        assert process.wait(20) == 0
    assert sorted(names) == sorted(
        [
            "engine_start",
            "load_weights",
            "build",
            "warm_up",
            "llm_request",
            "admission",
            "tokenize",
            "queue",
            "prefill",
            "first_decode",
            "decode",
            "stream",
        ]
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", "0.0.0.0"], "--insecure-no-auth"),
        (["--max-step-tokens", "0"], "max_step_tokens is 0"),
        (["--max-num-seqs", "0"], "max_num_seqs is 0"),
        (["--model", "no-such-model", "--port", "0"], "no model 'no-such-model'"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_code_2(flags: list[str], words: str) -> None:
    done = run(*flags)
    assert done.returncode == 2
    assert done.stdout == ""
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert words in error
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_named(serve: Callable[..., Any]) -> None:
    port = serve().url.rpartition(":")[2]
    done = run("--model", "tiny", "--port", port)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr


def test_a_missing_module_is_told_with_its_install_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    done = run("--model", "tiny", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "needs torch: pip install 'longpole[engine]'" in done.stderr


def test_help_imports_no_torch() -> None:
    code = """
import sys
import longpole_engine.commands, longpole_engine.settings
assert not {"torch", "fastapi", "numpy", "uvicorn"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
