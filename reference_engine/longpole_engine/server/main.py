"""Runs the server until a signal stops it."""

import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping

import uvicorn
from fastapi import FastAPI

from longpole.config import Setting
from longpole.errors import LongpoleError, UsageError
from longpole_engine.config import (
    Batching,
    EngineConfig,
    Eviction,
    KvFormat,
    Numerics,
    Policy,
    Preemption,
    Speculation,
    Weights,
)
from longpole_engine.server.app import create_app
from longpole_engine.server.service import Service
from longpole_engine.telemetry.otel import SpanWriter, otlp_processor


def run(
    settings: Mapping[str, Setting], *, is_open: bool, on_ready: Callable[[str, str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; requests in progress may finish first, within ``drain_s``.

    Args:
        settings: every key of ``[engine]``.
        is_open: a host that others can reach is wanted, without authentication.
        on_ready: called with address and model name when the first request would be answered.

    Raises:
        UsageError: a bad setting, a taken port, a host that needs ``is_open``, a missing model.
        LongpoleError: the model cannot be loaded.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    values = {key: setting.value for key, setting in settings.items()}
    config = engine_config(values)
    host = str(values["host"])
    _check_host(host, is_open=is_open)
    listener = _listen(host, int(values["port"] or 0))
    failures: list[Exception] = []

    def ready() -> None:
        port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{port}", service.name)

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    endpoint = settings["otlp_endpoint"]
    is_default = endpoint.source == "default"
    spans = SpanWriter(otlp_processor(None if is_default else str(endpoint.value)))
    service = Service(str(values["model"]), config, spans, ready, failed)
    app = create_app(service, int(values["max_body_bytes"] or 0))
    server = _server(app, int(values["drain_s"] or 0))
    # uvicorn drains, then raises the signal again for the handlers found here: a clean stop is
    # a success, so they do nothing.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with listener:
        server.run(sockets=[listener])
    if failures:
        raise _as_ours(failures[0]) from failures[0]


def engine_config(values: Mapping[str, object]) -> EngineConfig:
    """The engine's part of the settings.

    Raises:
        UsageError: a value that is unknown or out of range.
    """

    def number(key: str) -> int:
        return int(str(values[key]))

    try:
        return EngineConfig(
            weights=Weights(str(values["weights"])),
            numerics=Numerics(str(values["numerics"])),
            kv_format=KvFormat(str(values["kv_format"])),
            policy=Policy(str(values["policy"])),
            batching=Batching(str(values["batching"])),
            preemption=Preemption(str(values["preemption"])),
            eviction=Eviction(str(values["eviction"])),
            is_chunked=bool(values["chunked_prefill"]),
            is_prefix_cached=bool(values["prefix_cache"]),
            max_num_seqs=number("max_num_seqs"),
            max_model_tokens=number("max_model_tokens"),
            max_step_tokens=number("max_step_tokens"),
            max_queue=number("max_queue"),
            deadline_s=number("deadline_s"),
            kv_pages=number("kv_pages"),
            prefix_cache_mb=number("prefix_cache_mb"),
            num_threads=number("num_threads"),
            num_decode_threads=number("num_decode_threads"),
            speculation=Speculation(str(values["speculation"])),
            num_drafts=number("num_drafts"),
            is_draft_dynamic=bool(values["dynamic_drafts"]),
            exit_layers=number("exit_layers"),
            draft_model=str(values["draft_model"] or ""),
            regret_budget=float(str(values["regret_budget"])),
            regret_exceptions=number("regret_exceptions"),
            regret_routes=tuple(str(values["regret_routes"] or "").replace(",", " ").split()),
        )
    except ValueError as error:
        raise UsageError(f"[engine] {error}") from error


def _server(app: FastAPI, drain_s: int) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=drain_s,
        )
    )


def _check_host(host: str, *, is_open: bool) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if is_loopback:
        return
    if not is_open:
        raise UsageError(
            f"host {host} can be reached by others and the engine asks for no key: "
            "use 127.0.0.1, or say --insecure-no-auth"
        )
    logging.getLogger("longpole.engine").warning("open to everyone who reaches %s", host)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error}; choose another --port"
        ) from error


def _as_ours(error: Exception) -> LongpoleError:
    if isinstance(error, LongpoleError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return LongpoleError(
            f"`longpole engine serve` needs {error.name}: pip install 'longpole[engine]'"
        )
    return LongpoleError(f"the model cannot be loaded: {error}")
