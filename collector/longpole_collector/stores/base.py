"""What a store promises. These comments are binding; one conformance suite runs over all stores.

- ``append`` is durable when it returns and idempotent on (trace_id, span_id).
- ``sql`` is read-only; an unknown trace gives an empty table, not an error.
- ``StoreBusy`` means: the same call again may succeed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from longpole.vocab import Span

Value = str | int | float | bool | None
Params = Sequence[Value] | Mapping[str, Value]


class Stream(NamedTuple):
    """An answer on its way: its columns, and its rows batch by batch."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Reader(Protocol):
    """The reading half, the same for a local file, a remote collector or files in memory."""

    def sql(self, query: str, params: Params = ()) -> pa.Table:
        """The rows of one read-only statement over the views.

        Raises:
            BadInput: the statement is not read-only, or does not parse, or hits a row or time
                limit; the message is the engine's, shortened.
            Unreachable: the store cannot be reached.
        """

    def close(self) -> None:
        """Let go of the store; later calls raise ``Unreachable``."""


class Store(Reader, Protocol):
    """A store that also takes spans."""

    def append(self, spans: Sequence[Span]) -> int:
        """Store spans; returns how many were new."""
