"""Models and engines shared by the engine's tests."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
import uvicorn
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from longpole.errors import UsageError
from longpole.vocab import keys
from longpole_engine.answers import Delivery
from longpole_engine.config import EngineConfig, Weights
from longpole_engine.engine import Engine
from longpole_engine.models.checkpoint import Checkpoint, TextSpec
from longpole_engine.models.loader import SMOLLM2_INSTALL, load
from longpole_engine.models.tiny import tiny
from longpole_engine.server.app import create_app
from longpole_engine.server.service import Service
from longpole_engine.telemetry.events import RequestRecord, Timeline, now_ns
from longpole_engine.telemetry.otel import SpanWriter
from longpole_engine.text.tokenizer import byte_alphabet, byte_level_json
from longpole_engine.types import Chunk, Request, SamplingParams

torch.set_num_threads(1)  # on cores shared with other work, threads wait for each other

SMALL = {"max_num_seqs": 4, "max_model_tokens": 256, "prefix_cache_mb": 1, "num_threads": 1}


@pytest.fixture(scope="session")
def tiny_model() -> Checkpoint:
    return tiny()


def small_vocabulary(seed: int = 0) -> Checkpoint:
    """The tiny model with 64 tokens only: three specials and 61 bytes."""
    whole = tiny(seed)
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokens = [*special, *list(byte_alphabet().values())[65:126]]
    text = TextSpec(byte_level_json(tokens, (), special), None, (2,))
    tensors = {**whole.tensors, "embed": whole.tensors["embed"][:64].clone()}
    return Checkpoint(replace(whole.config, vocab_size=64), tensors, text)


@pytest.fixture(scope="session")
def small_model() -> Checkpoint:
    return small_vocabulary()


@pytest.fixture(scope="session")
def other_small_model() -> Checkpoint:
    return small_vocabulary(1)


@pytest.fixture(scope="session")
def smollm2() -> Checkpoint:
    try:
        return load("smollm2")
    except UsageError:
        pytest.skip(f"no weights: {SMOLLM2_INSTALL}")


def half_rotation_parts(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """The tensors taken apart, by Hugging Face's names."""
    c, t = checkpoint.config, checkpoint.tensors
    q_rows, kv_rows = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    parts = {"model.embed_tokens.weight": t["embed"], "model.norm.weight": t["norm"]}
    for i in range(c.num_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        qkv, gate_up = t[ours + "qkv"], t[ours + "gate_up"]
        for name, value in (
            ("self_attn.q_proj", qkv[:q_rows]),
            ("self_attn.k_proj", qkv[q_rows : q_rows + kv_rows]),
            ("self_attn.v_proj", qkv[q_rows + kv_rows :]),
            ("self_attn.o_proj", t[ours + "attn_out"]),
            ("mlp.gate_proj", gate_up[: c.ffn_size]),
            ("mlp.up_proj", gate_up[c.ffn_size :]),
            ("mlp.down_proj", t[ours + "down"]),
            ("input_layernorm", t[ours + "attn_norm"]),
            ("post_attention_layernorm", t[ours + "ffn_norm"]),
        ):
            parts[f"{theirs}{name}.weight"] = value.clone()
    return parts


@pytest.fixture(scope="session")
def hugging_face_parts() -> Callable[[Checkpoint], dict[str, torch.Tensor]]:
    return half_rotation_parts


class Driver:
    """An engine stepped by hand: submits requests and collects their answers."""

    def __init__(
        self, checkpoint: Checkpoint, draft: Checkpoint | None = None, **changes: object
    ) -> None:
        config = EngineConfig(**{**SMALL, "weights": Weights.INT8, **changes})  # type: ignore[arg-type]
        self.engine = Engine(checkpoint, config, self._post, draft)
        self.chunks: dict[str, list[Chunk]] = {}
        self.records: dict[str, RequestRecord] = {}

    @staticmethod
    def _post(deliveries: Sequence[Delivery]) -> None:
        for sink, chunk in deliveries:
            sink(chunk)

    def submit(self, prompt: Sequence[int], route: str | None = None, **params: object) -> str:
        request_id = f"r{len(self.records)}"
        record = RequestRecord(Timeline(now_ns()))
        self.chunks[request_id], self.records[request_id] = [], record
        sampling = SamplingParams(**{"max_tokens": 8, "temperature": 0.0, **params})  # type: ignore[arg-type]
        sink = self.chunks[request_id].append
        try:
            self.engine.submit(
                Request(request_id, tuple(prompt), sampling, sink, record, route=route)
            )
        except Exception:
            del self.chunks[request_id], self.records[request_id]
            raise
        return request_id

    def drain(self) -> None:
        while self.engine.step():
            pass

    def text(self, request_id: str) -> str:
        return "".join(chunk.text for chunk in self.chunks[request_id])

    def texts(self, request_id: str) -> list[str]:
        """Each choice's text."""
        found: dict[int, str] = {}
        for chunk in self.chunks[request_id]:
            found[chunk.choice] = found.get(chunk.choice, "") + chunk.text
        return [found[choice] for choice in sorted(found)]

    def answer(self, prompt: Sequence[int], **params: object) -> tuple[str, RequestRecord]:
        request_id = self.submit(prompt, **params)
        self.drain()
        return self.text(request_id), self.records[request_id]


Drive = Callable[..., Driver]


@pytest.fixture(scope="session")
def drive(tiny_model: Checkpoint) -> Drive:
    """Makes a driver; ``checkpoint`` is the tiny model unless given."""

    def make(checkpoint: Checkpoint = tiny_model, **changes: object) -> Driver:
        return Driver(checkpoint, **changes)

    return make


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives a port nobody listens on."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port: int = server.getsockname()[1]
        return port

    return find


class Served:
    """A server in this process, on a thread, with its spans kept in memory."""

    def __init__(self, model: str, **changes: object) -> None:
        self.exporter = InMemorySpanExporter()
        self.failures: list[Exception] = []
        self._ready = threading.Event()
        config = EngineConfig(**{**SMALL, "weights": Weights.INT8, **changes})  # type: ignore[arg-type]
        spans = SpanWriter(SimpleSpanProcessor(self.exporter))
        self.service = Service(model, config, spans, self._ready.set, self.failures.append)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                create_app(self.service, 100_000), log_config=None, timeout_graceful_shutdown=2
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        assert self._ready.wait(60), self.failures

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._listener.close()

    def server_spans(self, num: int) -> list[ReadableSpan]:
        """The server spans once there are at least ``num``: they come after the response."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            spans = self.exporter.get_finished_spans()
            found = [span for span in spans if span.name == keys.ENGINE_SPAN_NAME]
            if len(found) >= num:
                return found
            time.sleep(0.01)
        raise AssertionError(f"{len(found)} server spans, not {num}")

    def stages(self, server: ReadableSpan) -> list[ReadableSpan]:
        """The children of a server span in order of time."""
        mine = [
            span
            for span in self.exporter.get_finished_spans()
            if span.parent and span.parent.span_id == server.context.span_id
        ]
        return sorted(mine, key=lambda span: (span.start_time or 0, span.end_time or 0))


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers; all stop with the session."""
    started: list[Served] = []

    def start(model: str = "tiny", *, is_waiting: bool = True, **changes: object) -> Served:
        served = Served(model, **changes)
        started.append(served)
        if is_waiting:
            served.wait()
        return served

    yield start
    for served in started:
        served.close()
