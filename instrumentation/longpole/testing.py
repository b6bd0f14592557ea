"""For users' own tests: the spans of a block, without a collector.

with capture_spans() as spans:
    answer(question)
assert spans.named("chat gpt-x")[0].attributes[keys.CHUNK_COUNT] == 12
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import overload

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from longpole import emit

_SETTLE_S = 5.0


class Spans(Sequence[ReadableSpan]):
    """Finished spans in the order they ended; grows while the block runs."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @overload
    def __getitem__(self, index: int) -> ReadableSpan: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReadableSpan]: ...
    def __getitem__(self, index: int | slice) -> ReadableSpan | Sequence[ReadableSpan]:
        """One finished span, or several."""
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def named(self, name: str) -> list[ReadableSpan]:
        """The finished spans of that name; empty if there is none."""
        return [span for span in self._all() if span.name == name]

    def _all(self) -> tuple[ReadableSpan, ...]:
        emit.attendant.run(bool, _SETTLE_S)  # streams that were garbage-collected end first
        return self._exporter.get_finished_spans()


@contextmanager
def capture_spans() -> Iterator[Spans]:
    """Longpole's spans of the block go into the yielded sequence and nowhere else.

    It switches the whole process, all threads, so tests that use it do not run in parallel
    threads. Blocks may nest; the inner one gets the spans.
    """
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = emit.force(provider)
    try:
        yield Spans(exporter)
    finally:
        emit.force(before)
