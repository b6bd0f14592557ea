"""The doctor's questions to a running collector.

The round trips store two spans of one trace, of the service ``longpole-doctor``, of kind
internal and without route, model or outcome. They are ordinary spans and stay visible as what
they are; a statistic by route, service or model never counts them, and only one over all traces
holds them, as one trace that lasts microseconds.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import grpc
import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from longpole.errors import LongpoleError
from longpole.vocab import Span, columns, keys
from longpole_collector.doctor_check import FAIL, OK, SERVICE, WARN, Check
from longpole_collector.doctor_data import lack_checks
from longpole_collector.doctor_mend import FIX
from longpole_collector.doctor_store import told_checks
from longpole_collector.stores.remote import RemoteReader, auth_headers

SCOPE: Final = "longpole.doctor"
MAX_SKEW_S: Final = 2.0
WAIT_S: Final = 10.0
_STEP_S: Final = 0.02
_INTERNAL: Final = 1
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_HEADERS: Final = {"content-type": "application/x-protobuf"}


def probe(url: str, grpc_address: str, key: str | None = None) -> Iterator[Check]:
    """Whether a collector answers, what it stores, both doors, its clock, what its spans lack.

    Args:
        url: its HTTP address.
        grpc_address: its gRPC address, HOST:PORT.
        key: the key to show; default is ``api_key`` of the settings, if there is one.
    """
    headers = auth_headers(key)
    with httpx.Client(base_url=url, timeout=WAIT_S, trust_env=False, headers=headers) as client:
        try:
            before_s = time.time()
            answer = client.get("/readyz")
            after_s = time.time()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            detail = f"no answer at {url}: {error or type(error).__name__}"
            yield Check("collector", FAIL, detail, "longpole collect, or pass the right --url")
            return
        if answer.status_code != httpx.codes.OK:
            fix = "wait for its replay to end, or see its log"
            yield Check("collector", FAIL, f"{url} is not ready ({answer.status_code})", fix)
            return
        yield Check("collector", OK, f"ready at {url}")
        yield _clock(answer.headers.get("date", ""), before_s, after_s)
        reader = RemoteReader(url, key)
        try:
            state = _state(client)
            yield from told_checks(state)
            if state.get("problem"):
                return
            yield _database(reader)
            yield from _broken(state)
            trace_id = secrets.token_bytes(16)
            yield _round_trip(
                "gRPC", lambda body: _send_grpc(grpc_address, body, headers), trace_id, reader
            )
            yield _round_trip("HTTP", lambda body: _send_http(client, body), trace_id, reader)
            yield from lack_checks(reader)
        finally:
            reader.close()


def _state(client: httpx.Client) -> Mapping[str, Any]:
    """What the collector says of itself; empty if it does not."""
    try:
        answer = client.get("/api/v1/status")
        found = answer.json() if answer.status_code == httpx.codes.OK else {}
    except (httpx.HTTPError, ValueError):  # an older collector: the other checks speak for it
        return {}
    return found if isinstance(found, dict) else {}


def _broken(state: Mapping[str, Any]) -> Iterator[Check]:
    """The files that the collector found it cannot read, and serves without."""
    for name, reason in sorted(state.get("broken", {}).items()):
        fix = (
            f"restore it from a backup, or stop the collector and run `{FIX}`: without {name} "
            "the rest is served"
        )
        yield Check(f"database {name}", FAIL, f"{name} cannot be read: {reason}", fix)


def _database(reader: RemoteReader) -> Check:
    """The database as its collector shows it; only that process may open the file."""
    try:
        found = set(reader.sql("SELECT * FROM spans LIMIT 0").column_names)
    except LongpoleError as error:
        return Check("database", FAIL, f"it cannot be read: {error}", "see the collector's log")
    missing = sorted({column.name for column in columns(Span)} - found)
    if missing:
        detail = f"the collector's schema lacks {', '.join(missing)}"
        return Check("database", WARN, detail, "restart the collector with this longpole")
    return Check("database", OK, "the collector has it open, its schema is this longpole's")


def _round_trip(
    door: str, send: Callable[[bytes], None], trace_id: bytes, reader: RemoteReader
) -> Check:
    """Send one span by a door and wait until a query shows it."""
    name = f"send by {door}"
    span_id = secrets.token_bytes(8)
    started_s = time.monotonic()
    try:
        send(_body(door, trace_id, span_id))
    except (grpc.RpcError, httpx.HTTPError) as error:
        reason = error.details() if isinstance(error, grpc.RpcError) else str(error)
        fix = f"see whether a firewall or another program has the {door} port"
        return Check(name, FAIL, f"the span was not taken: {reason}", fix)
    query = "SELECT service FROM spans WHERE trace_id = $1 AND span_id = $2"
    try:
        while not reader.sql(query, (trace_id.hex(), span_id.hex())).num_rows:
            if time.monotonic() - started_s > WAIT_S:
                detail = f"the span was taken and is not to be seen after {WAIT_S:g} s"
                return Check(name, FAIL, detail, "see the collector's log and /metrics")
            time.sleep(_STEP_S)
    except LongpoleError as error:
        return Check(
            name, FAIL, f"the span cannot be read back: {error}", "see the collector's log"
        )
    return Check(name, OK, f"read back after {(time.monotonic() - started_s) * 1e3:.0f} ms")


def _body(door: str, trace_id: bytes, span_id: bytes) -> bytes:
    request = ExportTraceServiceRequest()
    sender = request.resource_spans.add()
    sender.resource.attributes.add(key=keys.SERVICE_NAME).value.string_value = SERVICE
    scope_spans = sender.scope_spans.add()
    scope_spans.scope.name = SCOPE
    now_ns = time.time_ns()
    scope_spans.spans.add(
        trace_id=trace_id,
        span_id=span_id,
        name=f"doctor {door}",
        kind=_INTERNAL,
        start_time_unix_nano=now_ns,
        end_time_unix_nano=now_ns + 1000,
    )
    body: bytes = request.SerializeToString()
    return body


def _send_grpc(address: str, body: bytes, headers: Mapping[str, str]) -> None:
    # the doctor asks the collector itself, not a proxy that the environment names
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options=options) as channel:
        metadata = [(name.lower(), value) for name, value in headers.items()]
        channel.unary_unary(_EXPORT)(body, timeout=WAIT_S, metadata=metadata)


def _send_http(client: httpx.Client, body: bytes) -> None:
    client.post("/v1/traces", content=body, headers=_HEADERS).raise_for_status()


def _clock(date: str, before_s: float, after_s: float) -> Check:
    """The collector's clock against ours, by the Date header, which counts whole seconds."""
    try:
        theirs_s = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return Check("clock", WARN, "the collector did not say its time", "ask it without a proxy")
    ahead_s = max(theirs_s - after_s, 0.0) or min(theirs_s + 1.0 - before_s, 0.0)
    if abs(ahead_s) > MAX_SKEW_S:
        word = "ahead of" if ahead_s > 0 else "behind"
        detail = f"the collector's is {abs(ahead_s):.0f} s {word} ours"
        return Check("clock", WARN, detail, "synchronise both machines by NTP")
    return Check("clock", OK, f"the collector's and ours agree to {MAX_SKEW_S:g} s")
