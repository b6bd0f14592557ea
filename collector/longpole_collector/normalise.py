"""Received bodies -> rows of the store: which dialect reads a span, and what must not be stored.

The choice is made once per instrumentation scope where the scope alone decides, else per span.
Large batches take the fast way (``bulk``), which hands what is unusual back to here.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from longpole.errors import BadInput
from longpole.family import load
from longpole.vocab import Span
from longpole_collector import bulk
from longpole_collector.content import Scrubber
from longpole_collector.decode import Format, Received, parse
from longpole_collector.decode.raw import Attributes, RawSpan
from longpole_collector.dialects.base import FACTS, Dialect, Plain, draft
from longpole_collector.health import Health
from longpole_collector.stores.schema import SPANS, to_arrow

UNKNOWN: Final = "unknown"
UNCLAIMED: Final = Plain(FACTS, 0)
"""How a span nobody claims is read: generic fields, the facts it states, the rest as text."""
_MAX_SCOPES: Final = 10_000
_log = logging.getLogger("longpole.collector.normalise")


def read_unknown(raw: RawSpan) -> Span:
    """A span nobody claims."""
    return draft(raw, UNKNOWN, UNCLAIMED.rules).span()


class Reader:
    """Reads bodies and raw spans with the dialects that claim them; for one thread at a time."""

    def __init__(self, health: Health, scrubber: Scrubber) -> None:
        members = load("longpole_collector.dialects", "DIALECT", Dialect)
        self.dialects = sorted(members.values(), key=lambda dialect: dialect.order)
        self.health = health
        self.scrubber = scrubber
        self._by_scope: dict[str, Dialect | None] = {}
        self._marks = _marks_of(self.dialects)
        self._bulk: Any = None

    def table(self, received: Sequence[Received]) -> pa.Table:
        """The rows of all spans of these bodies, in no particular order.

        Columns, types and values are those of ``to_arrow(SPANS, ...)``; no bodies give no rows.
        A body that cannot be read, which the door does not let in, is counted and left out.
        """
        num_bytes = sum(len(each.body) for each in received)
        if num_bytes >= bulk.START_BYTES:
            bulk.start()
        is_plain = self.scrubber.policy.content == "drop"
        if num_bytes >= bulk.MIN_BYTES and is_plain and bulk.is_ready():
            try:
                return self._fast_table(received)
            except Exception:  # noqa: BLE001 - a fault must not lose spans; counts may be too high
                _log.exception("a batch is read one by one: the compiled loops failed")
                self._bulk = None
        return to_arrow(SPANS, [span for each in received for span in self.read(each)])

    def _fast_table(self, received: Sequence[Received]) -> pa.Table:
        if self._bulk is None:
            from longpole_collector.bulk.table import Bulk

            self._bulk = Bulk(self, UNKNOWN, UNCLAIMED)
        return self._bulk.table(received)

    def read(self, received: Received) -> list[Span]:
        """The canonical spans of one body, read one by one."""
        try:
            body = parse(received.body, Format(received.format), max_spans=None)
        except BadInput as error:
            self.health.add("log_frames_damaged")
            _log.warning("a body that was let in cannot be read: %s", error)
            return []
        return self.spans(body.spans(received.received_ns))

    def spans(self, raws: Iterable[RawSpan]) -> list[Span]:
        """The canonical spans of raw ones."""
        return [self.span(raw) for raw in raws]

    def span(self, raw: RawSpan) -> Span:
        """The canonical span; never raises on what a sender may send."""
        dialect = self.choose(raw.scope, raw.attributes)
        if dialect is None:
            self.health.add("spans_unknown_dialect")
            span = read_unknown(raw)
        else:
            try:
                span = dialect.read(raw)
            except Exception:  # noqa: BLE001 - a plug-in's fault must not lose the span
                self.health.add("dialect_errors", dialect.name)
                _log.warning("dialect %s failed on span %s", dialect.name, raw.span_id)
                span = read_unknown(raw)
        return self.scrubber.clean(span, raw.events, raw.links)

    def choose(self, scope: str, attributes: Attributes) -> Dialect | None:
        """The dialect that claims a span; ``None`` if none does."""
        owner = self.owner(scope)
        if owner is not None or (self._marks is not None and self._marks.isdisjoint(attributes)):
            return owner
        return next((d for d in self.dialects if d.claims(scope, attributes)), None)

    def owner(self, scope: str) -> Dialect | None:
        """The dialect that claims all spans of a scope; ``None`` if the scope does not decide."""
        if scope in self._by_scope:
            return self._by_scope[scope]
        chosen = next((d for d in self.dialects if d.claims(scope, {})), None)
        if len(self._by_scope) < _MAX_SCOPES:
            self._by_scope[scope] = chosen
        return chosen


def _marks_of(dialects: Sequence[Dialect]) -> frozenset[str] | None:
    """All attributes that make a dialect claim a span; ``None`` if they cannot be told."""
    marks: set[str] = set()
    for dialect in dialects:
        if dialect.marks is None:
            return None
        marks |= dialect.marks
    return frozenset(marks)
