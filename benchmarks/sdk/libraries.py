"""The libraries that are compared, each with its versions and its documented set-up.

Each peer runs in a virtual environment of its own, where neither longpole nor the other
benchmarks can be imported: this module and those it is used from import nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from tempfile import NamedTemporaryFile
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

OURS = "longpole"
_OTEL = "1.45.2"
_CLIENTS = ("openai==3.57.0", "anthropic==2.14.0", f"opentelemetry-sdk=={_OTEL}")

Wrap = Callable[[Any], Any]
"""What an application does to a client it made; most libraries patch the classes instead."""


def _same(client: Any) -> Any:
    return client


class Collected(SpanExporter):
    """Takes every span, counts it, and keeps it if asked to."""

    def __init__(self, is_kept: bool) -> None:
        self.num = 0
        self.spans: list[ReadableSpan] = []
        self._is_kept = is_kept

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Always a success."""
        self.num += len(spans)
        if self._is_kept:
            self.spans += spans
        return SpanExportResult.SUCCESS

    def taken(self) -> list[ReadableSpan]:
        """The spans that ended since this was last asked."""
        flush: Any = getattr(trace.get_tracer_provider(), "force_flush", bool)
        flush()
        spans, self.spans = self.spans, []
        return spans


def _provide(exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    trace.set_tracer_provider(provider)
    return provider


def _longpole(exporter: SpanExporter) -> Wrap:
    _provide(exporter)
    wrap: Wrap = import_module("longpole").wrap
    return wrap


def _instrumentors(*modules: str) -> Callable[[SpanExporter], Wrap]:
    """For libraries made of instrumentors, one module for OpenAI and one for Anthropic."""

    def setup(exporter: SpanExporter) -> Wrap:
        provider = _provide(exporter)
        for module, name in zip(modules, ("OpenAI", "Anthropic"), strict=True):
            instrumentor = getattr(import_module(module), f"{name}Instrumentor")
            instrumentor().instrument(tracer_provider=provider)
        return _same

    return setup


def _langfuse(exporter: SpanExporter) -> Wrap:
    langfuse = import_module("langfuse")
    keys = {"public_key": "pk", "secret_key": "sk"}
    langfuse.Langfuse(**keys, base_url="http://127.0.0.1:9", span_exporter=exporter)
    import_module("langfuse.openai")  # the drop-in: importing it patches openai's classes
    return _same


def _logfire(exporter: SpanExporter) -> Wrap:
    logfire = import_module("logfire")
    processor = BatchSpanProcessor(exporter, schedule_delay_millis=500)
    logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[processor])
    logfire.instrument_openai()
    logfire.instrument_anthropic()
    return _same


def _openlit(exporter: SpanExporter) -> Wrap:
    openlit = import_module("openlit")
    _provide(exporter)
    with NamedTemporaryFile("w", suffix=".json") as prices:  # else it asks the internet for them
        prices.write("{}")
        prices.flush()
        openlit.init(disable_metrics=True, disable_events=True, pricing_json=prices.name)
    return _same


@dataclass(frozen=True)
class Library:
    """One side of the comparison.

    Attributes:
        name: of its environment too.
        title: as it stands in tables.
        packages: what pip installs; empty for ours, which runs where the benchmark runs.
        lone: what it installs then without dependencies, where it finds no set that fits.
        has_anthropic: it has something for Anthropic's client.
        setup: gets where spans go; returns what to do with a client.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    setup: Callable[[SpanExporter], Wrap]
    lone: tuple[str, ...] = ()
    has_anthropic: bool = True


LIBRARIES = {
    library.name: library
    for library in (
        Library(OURS, "longpole", (), _longpole),
        Library(
            "otel-genai",
            "OTel GenAI 1.3b0",
            (
                "opentelemetry-instrumentation-genai-openai==1.3b0",
                "opentelemetry-instrumentation-genai-anthropic==1.3b0",
                "opentelemetry-util-genai==1.3b0",
                *_CLIENTS,
            ),
            _instrumentors(
                "opentelemetry.instrumentation.genai.openai",
                "opentelemetry.instrumentation.genai.anthropic",
            ),
        ),
        Library(
            "openllmetry",
            "OpenLLMetry 0.62.4",
            (
                "opentelemetry-instrumentation-openai==0.62.4",
                "opentelemetry-instrumentation-anthropic==0.62.4",
                *_CLIENTS,
            ),
            _instrumentors(
                "opentelemetry.instrumentation.openai", "opentelemetry.instrumentation.anthropic"
            ),
        ),
        Library(
            "openinference",
            "OpenInference 0.1.66",
            (
                "openinference-instrumentation-openai==0.1.66",
                "openinference-instrumentation-anthropic==3.1.0",
                *_CLIENTS,
            ),
            _instrumentors(
                "openinference.instrumentation.openai", "openinference.instrumentation.anthropic"
            ),
        ),
        Library(
            "langfuse",
            "Langfuse 5.0.4",
            ("langfuse==5.0.4", *_CLIENTS),
            _langfuse,
            has_anthropic=False,
        ),
        Library("logfire", "Logfire 5.4.0", ("logfire==5.4.0", *_CLIENTS), _logfire),
        Library(
            "openlit",
            "OpenLIT 1.45.0",
            (
                "openai==2.54.0",  # it allows neither openai 3 nor anthropic 1
                "anthropic==0.125.0",
                f"opentelemetry-exporter-otlp=={_OTEL}",
                "opentelemetry-instrumentation==0.66b2",
                "opentelemetry-instrumentation-httpx==0.66b2",
                "boto3",
                "requests",
                "schedule",
                "xmltodict",
            ),
            _openlit,
            lone=("openlit==1.45.0",),
        ),
    )
}
