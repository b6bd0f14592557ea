"""Raw spans -> canonical spans: which dialect reads a span, and what must not be stored.

The choice is made once per instrumentation scope where the scope alone decides, else per span.
"""

import json
import logging
from typing import Any, Final

from longpole.family import load
from longpole.vocab import Span
from longpole_collector.content import CUT_FLAG, Scrubbed, scrub, scrub_events
from longpole_collector.decode.raw import RawLink, RawSpan, text
from longpole_collector.dialects.base import FACTS, Dialect, draft
from longpole_collector.health import Health

UNKNOWN: Final = "unknown"
_MAX_SCOPES: Final = 10_000
_log = logging.getLogger("longpole.collector.normalise")


def read_unknown(raw: RawSpan) -> Span:
    """A span nobody claims: generic fields, the facts it states itself, the rest as text."""
    return draft(raw, UNKNOWN, FACTS).span()


class Normaliser:
    """Reads raw spans with the dialect that claims them."""

    def __init__(self, health: Health, *, keep_content: bool = False) -> None:
        members = load("longpole_collector.dialects", "DIALECT", Dialect)
        self._dialects = sorted(members.values(), key=lambda dialect: dialect.order)
        self._by_scope: dict[str, Dialect | None] = {}
        self._health = health
        self._keep_content = keep_content

    def span(self, raw: RawSpan) -> Span:
        """The canonical span; never raises on what a sender may send."""
        dialect = self._choose(raw)
        if dialect is None:
            self._health.add("spans_unknown_dialect")
            span = read_unknown(raw)
        else:
            try:
                span = dialect.read(raw)
            except Exception:  # noqa: BLE001 - a plug-in's fault must not lose the span
                self._health.add("dialect_errors", dialect.name)
                _log.warning("dialect %s failed on span %s", dialect.name, raw.span_id)
                span = read_unknown(raw)
        scrubbed = scrub(span.attributes, keep_content=self._keep_content)
        self._count(scrubbed)
        if raw.events:
            self._count(scrub_events(raw.events, keep_content=self._keep_content))
        if scrubbed.num_cut:
            span.flags.append(CUT_FLAG)
        if raw.events or raw.links:
            span = span._replace(events=_events(raw), links=_links(raw.links))
        return span

    def _choose(self, raw: RawSpan) -> Dialect | None:
        if raw.scope in self._by_scope:
            chosen = self._by_scope[raw.scope]
        else:
            chosen = next((d for d in self._dialects if d.claims(raw.scope, {})), None)
            if len(self._by_scope) < _MAX_SCOPES:
                self._by_scope[raw.scope] = chosen
        return chosen or next(
            (d for d in self._dialects if d.claims(raw.scope, raw.attributes)), None
        )

    def _count(self, scrubbed: Scrubbed) -> None:
        for cause, num in zip(("content", "secret", "too_long"), scrubbed, strict=True):
            if num:
                self._health.add("values_dropped", cause, num)


def _events(raw: RawSpan) -> str | None:
    return _json(
        [
            {"name": event.name, "time_ns": event.time_ns, "attributes": event.attributes}
            for event in raw.events
        ]
    )


def _links(links: list[RawLink]) -> str | None:
    return _json([link._asdict() for link in links])


def _json(value: list[dict[str, Any]]) -> str | None:
    if not value:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=text)
