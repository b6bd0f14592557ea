"""Files into a store, through the same steps as requests: decode, dialect, store, roll-up.

Nothing goes through the log: the import is synchronous and the store's own commit makes it
durable. GenAI events of log records are joined to their spans when all files are read, in
whichever of them those are. If a collector runs on the folder, the files' requests are posted to
it instead.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from longpole.errors import BadInput, StoreBusy, Unreachable
from longpole.vocab import Span
from longpole_collector.content import Scrubber, own_settings, policy_of
from longpole_collector.decode import Format, RawSpan, Received
from longpole_collector.decode.logs import MAX_RECORDS, LogEvent
from longpole_collector.decode.raw import MAX_SPANS
from longpole_collector.files import Logs, Piece, read
from longpole_collector.health import Health
from longpole_collector.kept_content import content_retention, note_kept
from longpole_collector.otlp_out import logs_to_otlp, to_otlp, to_raw
from longpole_collector.rollup import load_rollup
from longpole_collector.stores import clickhouse
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.remote import auth_headers
from longpole_collector.whereabouts import find
from longpole_collector.writer import Writer

_BATCH_SPANS: Final = 8192
_POST_SPANS: Final = 2000
_POST_BYTES: Final = 8 << 20
_JOINED_EVENTS: Final = 20_000
"""As many are joined each time the writer settles."""
_TRIES: Final = 60
_SETTLE_S: Final = 5.0
_TYPES: Final = {Format.PROTOBUF: "application/x-protobuf", Format.JSON: "application/json"}
_T = TypeVar("_T", RawSpan, LogEvent)


class Imported(NamedTuple):
    """What came of files.

    Attributes:
        num_spans: good spans.
        num_new: new ones among them; ``None`` when a running collector took them.
        num_rejected: bad spans, and records that are not kept.
        reason: why the first of these was.
        num_events: GenAI events of log records.
    """

    num_spans: int
    num_new: int | None
    num_rejected: int
    reason: str
    num_events: int = 0


def import_all(files: Sequence[Path], *, db: Path | None, url: str | None) -> Imported:
    """Import files into a data folder, or into the store or collector at ``url`` or on that folder.

    Raises:
        BadInput: a file cannot be read; files before it are imported.
        Unreachable: store or collector cannot be reached.
    """
    key: str | None = None
    if url is not None and clickhouse.is_address(url):
        from longpole_collector.stores.clickhouse.opening import import_files

        return import_files(files, url)
    if url is None and db is not None:
        try:
            return _into_folder(files, db)
        except StoreBusy:
            running = find(db)
            if running is None:
                raise
            url, key = running.url, running.key
    with httpx.Client(timeout=60.0, trust_env=False, headers=auth_headers(key)) as client:
        poster = _Poster(client, str(url).rstrip("/"))
        done = [poster.post_file(path) for path in files]
        poster.wait_settled()
    return _sum(done)


def import_into(writer: Writer, path: Path) -> Imported:
    """Store a file's spans and events; joining these and roll-ups are left to the caller.

    Raises:
        BadInput: not a trace file, or a broken one; the message names file and line.
    """
    num_spans = num_new = num_rejected = num_events = 0
    reason = ""
    waiting: list[Span] = []
    for piece in read(path):
        if isinstance(piece, Piece):
            waiting += writer.spans(piece.body.spans(time.time_ns()))
            num_rejected += piece.body.num_rejected
            reason = reason or piece.body.reason
        elif isinstance(piece, Logs):
            if piece.body.events:
                writer.write_events([Received(piece.data, piece.form, time.time_ns())])
            num_events += len(piece.body.events)
            num_rejected += piece.body.num_dropped
            reason = reason or piece.body.reason
        else:
            waiting += [writer.cleaned(span) for span in piece]
        if len(waiting) >= _BATCH_SPANS:
            num_spans += len(waiting)
            num_new += writer.write_spans(waiting)
            waiting = []
    num_spans += len(waiting)
    num_new += writer.write_spans(waiting)
    return Imported(num_spans, num_new, num_rejected, reason, num_events)


def _into_folder(files: Sequence[Path], folder: Path) -> Imported:
    store = DuckStore(folder)
    try:
        health = Health()
        policy = policy_of(folder)
        writer = Writer(store, load_rollup(), health, scrubber=Scrubber(policy, health))
        done = _sum([import_into(writer, path) for path in files])
        for _ in range(1 + done.num_events // _JOINED_EVENTS):
            writer.settle(everything=True)
        note_kept(store, content_retention(policy, own_settings(folder)))
    finally:
        store.close()
    return done


def _sum(done: Sequence[Imported]) -> Imported:
    news = [part.num_new for part in done if part.num_new is not None]
    return Imported(
        sum(part.num_spans for part in done),
        sum(news) if len(news) == len(done) else None,
        sum(part.num_rejected for part in done),
        next((part.reason for part in done if part.reason), ""),
        sum(part.num_events for part in done),
    )


class _Poster:
    """Sends files' requests to a running collector."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        self._url = url
        self._has_events = False

    def post_file(self, path: Path) -> Imported:
        num_spans = num_rejected = num_events = 0
        reason = ""
        for piece in read(path):
            if isinstance(piece, Piece):
                self._post_piece(piece)
                num_spans += piece.body.num_spans
                num_rejected += piece.body.num_rejected
                reason = reason or piece.body.reason
            elif isinstance(piece, Logs):
                self._post_logs(piece)
                num_events += len(piece.body.events)
                num_rejected += piece.body.num_dropped
                reason = reason or piece.body.reason
            else:
                self._post_spans(map(to_raw, piece))
                num_spans += len(piece)
        self._has_events |= num_events > 0
        return Imported(num_spans, None, num_rejected, reason, num_events)

    def wait_settled(self) -> None:
        """Wait a moment for what was posted to be stored and rolled up."""
        wanted = {"longpole_queue_bytes 0", "longpole_dirty_traces 0"}
        if self._has_events:
            wanted.add("longpole_pending_events 0")
        deadline = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline:
            lines = self._client.get(f"{self._url}/metrics").text.splitlines()
            if wanted <= set(lines):
                return
            time.sleep(0.1)

    def _post_piece(self, piece: Piece) -> None:
        """A request as it is written; in parts if it is too large, anew if it is no OTLP."""
        num_all = piece.body.num_spans + piece.body.num_rejected
        if piece.data is not None and len(piece.data) <= _POST_BYTES and num_all <= MAX_SPANS:
            self._post(piece.data, piece.form)
        else:
            self._post_spans(piece.body.spans(0))

    def _post_spans(self, spans: Iterable[RawSpan]) -> None:
        spans = iter(spans)
        while part := list(islice(spans, _POST_SPANS)):
            for document in _documents(part, to_otlp):
                self._post(document, Format.JSON)

    def _post_logs(self, piece: Logs) -> None:
        """A logs request as it is written, or its events in parts if it is too large."""
        num_all = len(piece.body.events) + piece.body.num_dropped
        if len(piece.data) <= _POST_BYTES and num_all <= MAX_RECORDS:
            self._post(piece.data, piece.form, "/v1/logs")
            return
        for first in range(0, len(piece.body.events), _POST_SPANS):
            part = piece.body.events[first : first + _POST_SPANS]
            for document in _documents(part, logs_to_otlp):
                self._post(document, Format.JSON, "/v1/logs")

    def _post(self, data: bytes, form: Format, path: str = "/v1/traces") -> None:
        headers = {"content-type": _TYPES[form]}
        for _ in range(_TRIES):
            try:
                response = self._client.post(self._url + path, content=data, headers=headers)
            except httpx.HTTPError as error:
                raise Unreachable(f"no collector answers at {self._url}: {error}") from error
            if response.status_code == 200:
                return
            if response.status_code not in (429, 503):
                raise BadInput(f"{self._url} answered {response.status_code}: {response.text}")
            time.sleep(1.0)
        raise Unreachable(f"{self._url} stays full or not ready: try again later")


def _documents(
    records: Sequence[_T], to_document: Callable[[Sequence[_T]], dict[str, Any]]
) -> Iterator[bytes]:
    """Requests of these records, none larger than the limit unless one record alone is."""
    document = json.dumps(to_document(records)).encode()
    if len(document) <= _POST_BYTES or len(records) == 1:
        yield document
    else:
        middle = len(records) // 2
        yield from _documents(records[:middle], to_document)
        yield from _documents(records[middle:], to_document)
