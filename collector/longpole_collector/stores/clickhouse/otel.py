"""The OpenTelemetry collector's own table ``otel_traces``, read as it is.

It is never written to. What is new in it is told by the number of its spans of each minute, since
it does not say when a row came; of those minutes the spans that are not known yet are read, put
through the same dialects as spans that come by the wire, and kept in a database of our own.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from time import monotonic, time_ns
from typing import Any, Final, Self

import pyarrow as pa

from longpole.errors import BadInput, Unreachable
from longpole.vocab import Kind, Status
from longpole_collector.content import Policy, Scrubber
from longpole_collector.decode.raw import (
    Attributes,
    RawEvent,
    RawLink,
    RawSpan,
    Resource,
    Value,
    resource_of,
)
from longpole_collector.health import Health
from longpole_collector.normalise import Reader
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.schema import FOLLOWED, META, noted
from longpole_collector.stores.clickhouse.store import ClickStore
from longpole_collector.stores.schema import SPANS, to_arrow

MINUTE_NS: Final = 60_000_000_000
_KEY: Final = "pseudonym_key"
_SPANS_AT_ONCE: Final = 50_000
_SPANS_A_LOOK: Final = 10 * _SPANS_AT_ONCE
"""After so many what is new is settled before more is taken over."""
_LATE_NS: Final = 3_600_000_000_000
_CHEAP_S: Final = 0.5
_REST: Final = 20
"""Where a look at all minutes takes longer than that, a twentieth of the time at most goes into
such looks; in between only the last hour is looked at."""
_WHOLE: Final = re.compile(r"-?(0|[1-9]\d{0,17})")
_REAL: Final = re.compile(r"-?\d{1,40}(\.\d{1,40})?(e[+-]\d{1,3})?")
_KINDS: Final = frozenset(kind.value for kind in Kind)
_STATUSES: Final = frozenset(status.value for status in Status)
_NEEDED: Final = {
    "Timestamp": "DateTime64(9",
    "TraceId": "String",
    "SpanId": "String",
    "ParentSpanId": "String",
    "SpanName": "",
    "SpanKind": "",
    "ResourceAttributes": "Map(",
    "ScopeName": "String",
    "SpanAttributes": "Map(",
    "Duration": "",
    "StatusCode": "",
    "StatusMessage": "String",
    "Events.Timestamp": "Array(DateTime64(9",
    "Events.Name": "Array(",
    "Events.Attributes": "Array(Map(",
    "Links.TraceId": "Array(",
    "Links.SpanId": "Array(",
    "Links.Attributes": "Array(Map(",
}
"""Columns that are read, and how their types begin."""
_CHANGED: Final = """
SELECT s.minute AS minute, s.num AS num
FROM (
    SELECT intDiv(toUnixTimestamp64Nano(Timestamp), 60000000000) AS minute, count() AS num
    FROM {source} WHERE Timestamp >= fromUnixTimestamp64Nano({since:Int64}) GROUP BY minute
) AS s
LEFT JOIN (SELECT minute, num FROM followed_rows FINAL) AS f ON f.minute = s.minute
WHERE coalesce(f.num, 0) <> s.num
ORDER BY minute
"""
_MAKE_KEY: Final = (  # of two that are made at once the first stays
    "INSERT INTO {table} (key, value, version) SELECT {key:String}, {value:String}, "
    "toUInt64(18446744073709551615) - toUInt64(toUnixTimestamp64Nano(now64(9)))"
)
_ROWS: Final = """
SELECT
    TraceId AS trace_id, SpanId AS span_id, ParentSpanId AS parent_id,
    toUnixTimestamp64Nano(Timestamp) AS start_ns, toInt64(Duration) AS length_ns,
    toString(SpanName) AS name, toString(SpanKind) AS kind, ScopeName AS scope,
    toString(StatusCode) AS status, StatusMessage AS status_message,
    ResourceAttributes AS resource, SpanAttributes AS attributes,
    arrayMap(at -> toUnixTimestamp64Nano(at), Events.Timestamp) AS event_ns,
    Events.Name AS event_names, Events.Attributes AS event_attributes,
    Links.TraceId AS link_traces, Links.SpanId AS link_spans, Links.Attributes AS link_attributes
FROM {source}
WHERE Timestamp >= fromUnixTimestamp64Nano({since:Int64})
    AND Timestamp < fromUnixTimestamp64Nano({until:Int64})
    AND (TraceId, SpanId, toUnixTimestamp64Nano(Timestamp)) NOT IN (
        SELECT trace_id, span_id, start_ns FROM span_rows
        WHERE start_ns >= {since:Int64} AND start_ns < {until:Int64}
    )
"""


class _Real(float):
    """A number that was written out: what nobody reads is kept as it was written."""

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __str__(self) -> str:
        return self.text


class Following:
    """Takes over what is new in the collector's table; used by one thread."""

    def __init__(self, store: ClickStore, policy: Policy | None = None) -> None:
        """Look whether the table can be read.

        Args:
            store: of our own; its address names the table.
            policy: what of prompts and answers is kept; drops content if absent. The key of
                pseudonyms is the store's own.

        Raises:
            Unreachable: there is no such table, or it may not be read.
            BadInput: it has other columns than the exporter's.
        """
        self._store = store
        self._source = store.client.address.source
        self.health = Health()
        _check(store, self._source)
        chosen = replace(policy or Policy(), key=shared_key(store.client))
        self._reader = Reader(self.health, Scrubber(chosen, self.health))
        self._look_s = 0.0
        self._looked_s = -inf

    def follow(self) -> int:
        """Take over spans that are new, the latest minutes first; returns how many that were.

        Not all of many at once: until it returns 0 there may be more.
        """
        client = self._store.client
        num_new = 0
        for minutes in [*_stretches(self._changed())][::-1]:
            if num_new >= _SPANS_A_LOOK:
                break
            num_new += self._take(minutes[0][0] * MINUTE_NS, (minutes[-1][0] + 1) * MINUTE_NS)
            seen = {"minute": [m for m, _ in minutes], "num": [n for _, n in minutes]}
            types = pa.schema([("minute", pa.int64()), ("num", pa.uint64())])
            client.insert(FOLLOWED, pa.table(seen, types))
        return num_new

    def _changed(self) -> list[tuple[int, int]]:
        """The minutes in which spans came, and how many each has."""
        since_ns, begun_s = 0, monotonic()
        if self._look_s > _CHEAP_S and begun_s - self._looked_s < _REST * self._look_s:
            since_ns = (time_ns() - _LATE_NS) // MINUTE_NS * MINUTE_NS
        asked = _CHANGED.replace("{source}", self._source)
        found = self._store.client.ask(asked, since=since_ns).to_pydict()
        if since_ns == 0:
            self._looked_s = monotonic()
            self._look_s = self._looked_s - begun_s
        return list(zip(found["minute"], found["num"], strict=True))

    def _take(self, since_ns: int, until_ns: int) -> int:
        asked = _ROWS.replace("{source}", self._source)
        rows = self._store.client.ask(asked, since=since_ns, until=until_ns)
        received_ns = time_ns()
        for batch in rows.to_batches(_SPANS_AT_ONCE):
            spans = self._reader.spans(_raws(batch, received_ns))
            self._store.insert(to_arrow(SPANS, spans))
        return int(rows.num_rows)


def shared_key(client: Client) -> bytes:
    """The key of pseudonyms, the same for all who write here: made by the first, and kept."""
    found = noted(client, _KEY)
    if found is None:
        table = f"{client.address.database}.{META}"
        asked = _MAKE_KEY.replace("{table}", table)
        client.tell(asked, key=_KEY, value=os.urandom(32).hex())
        found = noted(client, _KEY)
    return bytes.fromhex(str(found))


def _check(store: ClickStore, source: str) -> None:
    database, _, table = source.partition(".")
    found = store.client.ask(
        "SELECT name, type FROM system.columns WHERE database = {db:String} AND table = {t:String}",
        db=database,
        t=table,
    )
    types = dict(zip(found["name"].to_pylist(), found["type"].to_pylist(), strict=True))
    if not types:
        raise Unreachable(
            f"there is no table {source} at {store.client.address}, or this user may not read it"
        )
    for name, begin in _NEEDED.items():
        if name not in types:
            raise BadInput(f"{source} has no column {name}: it is no table of the exporter's")
        if not types[name].startswith(begin):
            raise BadInput(f"column {name} of {source} is {types[name]}: only {begin}...) is read")


def _stretches(pairs: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Neighbouring minutes that can be read at once."""
    for _, run in groupby(enumerate(pairs), key=lambda item: item[1][0] - item[0]):
        part: list[tuple[int, int]] = []
        size = 0
        for _, pair in run:
            if part and size + pair[1] > _SPANS_AT_ONCE:
                yield part
                part, size = [], 0
            part.append(pair)
            size += pair[1]
        yield part


def _raws(rows: pa.RecordBatch, received_ns: int) -> Iterator[RawSpan]:
    resources: dict[tuple[tuple[str, str], ...], Resource] = {}
    for row in rows.to_pylist():
        sender = tuple(row["resource"])
        if sender not in resources:
            resources[sender] = resource_of(dict(sender))
        yield _raw(row, resources[sender], received_ns)


def _raw(row: Mapping[str, Any], resource: Resource, received_ns: int) -> RawSpan:
    start_ns, length_ns = row["start_ns"], row["length_ns"]
    return RawSpan(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        parent_id=row["parent_id"] or None,
        name=row["name"],
        kind=_word(row["kind"], "span_kind_", _KINDS, Kind.UNSPECIFIED.value),
        start_ns=start_ns,
        end_ns=start_ns + length_ns if length_ns >= 0 else 0,  # below: it had not ended
        received_ns=received_ns,
        status=_word(row["status"], "status_code_", _STATUSES, Status.UNSET.value),
        status_message=row["status_message"],
        attributes=_typed(row["attributes"]),
        events=[
            RawEvent(name, at_ns, _typed(attributes))
            for name, at_ns, attributes in zip(
                row["event_names"], row["event_ns"], row["event_attributes"], strict=True
            )
        ],
        links=[
            RawLink(trace_id, span_id, _typed(attributes))
            for trace_id, span_id, attributes in zip(
                row["link_traces"], row["link_spans"], row["link_attributes"], strict=True
            )
        ],
        scope=row["scope"],
        resource=resource,
    )


def _typed(attributes: Sequence[tuple[str, str]]) -> Attributes:
    """The exporter writes every value as text: numbers and lists become what they were."""
    return {key: _value(text) for key, text in attributes}


def _value(text: str) -> Value:
    if _WHOLE.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text):
        return _Real(text)
    if text.startswith('["') and text.endswith('"]'):
        try:
            found = json.loads(text)
        except ValueError:
            return text
        return found if all(isinstance(item, str) for item in found) else text
    return text


def _word(said: str, prefix: str, known: frozenset[str], default: str) -> str:
    """Newer exporters write ``Client``, older ones ``SPAN_KIND_CLIENT``."""
    word = said.lower().removeprefix(prefix)
    return word if word in known else default
