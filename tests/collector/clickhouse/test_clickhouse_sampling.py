"""Sampled traces on their way to ClickHouse: the kept ones arrive whole, the others as counts."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longpole.errors import UsageError
from longpole.vocab import Rollup, keys
from longpole_collector import relay as module
from longpole_collector import thinning
from longpole_collector.content import Policy
from longpole_collector.decode import Format, Received
from longpole_collector.health import Health
from longpole_collector.ingest import UNDECIDED_FOLDER
from longpole_collector.relay import SENT, Relay, RelayWriter
from longpole_collector.sampling_rules import SamplingRules
from longpole_collector.stores.clickhouse.address import Address
from longpole_collector.stores.clickhouse.far import FarStore
from longpole_collector.stores.clickhouse.settling import Settling
from longpole_collector.stores.clickhouse.store import ClickStore
from longpole_collector.stores.connection import Limits
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.stores.minutes import refresh
from longpole_collector.stores.schema import SPANS, to_arrow
from longpole_collector.writer import Writer

RULES = SamplingRules(
    is_on=True, rest=0.1, slow_share=0.001, rare_traces=1, quiet_s=1e-6, slices=()
)
NUM = 24
"""Traces; every fourth is kept, and the first, which is rare."""
KEPT = NUM // 4
BEGAN_NS = time.time_ns() - 3600 * 10**9
LATER_NS = 4_000_000_000_000_000_000
SECOND = 10**9


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "_PAUSE_S", 0.0)
    monkeypatch.setattr("longpole_collector.stores.clickhouse.far._PAUSE_S", 0.0)


def workflow(otlp: Any, number: int, **root: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A root and a model call below it; of every fourth the id is kept whatever it is."""
    trace_id = number.to_bytes(9, "big") + bytes([255 if number % 4 == 0 else 1] * 7)
    start = BEGAN_NS + number * SECOND
    shared = {
        "trace_id": trace_id,
        "start_time_unix_nano": start,
        "end_time_unix_nano": start + SECOND + number,
    }
    route = {keys.ROUTE: "r"}
    call = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m", **route}
    top = otlp.span(span_id=b"rrrrrrrr", attributes=route, **shared, **root)
    return top, otlp.span(parent_span_id=b"rrrrrrrr", kind=3, attributes=call, **shared)


class Half:
    """The half that stays here: a relay without its thread, and the way into it."""

    def __init__(
        self, folder: Path, far: FarStore, rollup: Rollup, rules: SamplingRules = RULES
    ) -> None:
        self.health = Health()
        self.relay = Relay(far, folder, self.health, Policy(), Limits())
        self.writer = RelayWriter(self.relay, rollup, self.health, Policy(), rules)

    def put(self, spans: Any) -> None:
        """Store, roll up, decide and save."""
        self.writer.write(to_arrow(SPANS, spans))
        self.writer.settle(everything=True)
        self.writer.settle()
        self.writer.save()

    def send(self) -> None:
        """Send on all that may be."""
        while self.relay._send():
            pass


@pytest.fixture
def far(address: Address) -> Iterator[FarStore]:
    found = FarStore(address)
    yield found
    found.close()


@pytest.fixture
def open_half(tmp_path: Path, far: FarStore, rollup: Rollup) -> Iterator[Callable[..., Half]]:
    halves: list[Half] = []

    def make(rules: SamplingRules = RULES) -> Half:
        halves.append(Half(tmp_path, far, rollup, rules))
        return halves[-1]

    yield make
    for half in halves:
        half.relay.store.close()


def settled(far: FarStore, rollup: Rollup) -> ClickStore:
    """The other store, when all that came is settled there."""
    with far.reached() as store:
        Settling(store.client, rollup).settle()
        return store


def rows(store: Any, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.sql(query).to_pylist()
    return found


def minutes(store: Any) -> list[list[dict[str, Any]]]:
    """What the views of minutes say of all that came."""
    counted = "SELECT start_ns, service, route, metric, bucket, sum(num) AS n, sum(sum_ms) AS ms, "
    counted += "min(min_ms) AS least, max(max_ms) AS most FROM {} GROUP BY ALL ORDER BY ALL"
    staged = "SELECT start_ns, route, stage, sum(num) AS n, sum(critical_ns) AS ns FROM {} "
    staged += "GROUP BY ALL ORDER BY ALL"
    asked = [counted.format(view) for view in ("minutes", "hours")]
    asked += [staged.format(view) for view in ("stage_minutes", "stage_hours")]
    found = [rows(store, query) for query in asked]
    assert all(found)
    return found


def test_what_is_kept_arrives_whole_and_weighed_and_minutes_tell_of_all_that_came(
    otlp: Any, open_half: Any, far: FarStore, rollup: Rollup
) -> None:
    spans = [span for number in range(NUM) for span in otlp.canonical(*workflow(otlp, number))]
    half = open_half()
    half.put(spans)
    half.send()
    store = settled(far, rollup)
    found = rows(store, "SELECT trace_id, weight, num_spans, num_calls FROM traces")
    kept = {f"{number:018x}" + "ff" * 7 for number in range(0, NUM, 4)}
    assert {row["trace_id"] for row in found} == kept
    assert {(row["num_spans"], row["num_calls"]) for row in found} == {(2, 1)}
    weights = sorted(row["weight"] for row in found)
    assert weights == pytest.approx([1.0] + [10.0] * (KEPT - 1))
    weighed = rows(store, "SELECT sum(weight) AS w, count(*) AS n FROM calls")
    assert weighed == [{"w": pytest.approx(1 + 10 * (KEPT - 1)), "n": KEPT}]
    plain = DuckStore()
    writer = Writer(plain, rollup)
    writer.write_spans(spans)
    writer.settle(everything=True)
    refresh(plain, LATER_NS)
    assert minutes(store) == minutes(plain)
    plain.close()
    assert half.relay.num_waiting() == 0


def test_nothing_is_sent_before_it_is_saved(otlp: Any, open_half: Any, far: FarStore) -> None:
    half = open_half()
    half.writer.write(to_arrow(SPANS, otlp.canonical(*workflow(otlp, 4))))
    half.writer.settle(everything=True)
    half.writer.settle()
    half.send()
    with far.reached() as store:
        assert store.num_spans() == 0
    half.writer.save()
    assert half.relay.num_waiting() == 1
    half.send()
    assert half.relay.num_waiting() == 0
    with far.reached() as store:
        assert store.num_spans() == 2


def test_late_spans_go_the_way_of_their_trace(
    otlp: Any, open_half: Any, far: FarStore, rollup: Rollup
) -> None:
    half = open_half()
    half.put([s for number in range(NUM) for s in otlp.canonical(*workflow(otlp, number))])
    half.send()
    settled(far, rollup)
    for number in (8, 9):  # the former was kept, the latter not
        _, call = workflow(otlp, number)
        half.put(otlp.canonical({**call, "span_id": b"lateline", "status": (2, "failed")}))
    half.send()
    store = settled(far, rollup)
    asked = "SELECT num_spans, weight FROM traces ORDER BY num_spans DESC LIMIT 2"
    assert rows(store, asked) == [
        {"num_spans": 3, "weight": pytest.approx(10)}, {"num_spans": 2, "weight": 1.0},
    ] or rows(store, asked)[0] == {"num_spans": 3, "weight": pytest.approx(10)}  # fmt: skip
    assert rows(store, "SELECT count(*) AS n FROM traces") == [{"n": KEPT}]
    assert half.health.total("traces_dropped", "late") == 1
    told = "SELECT sum(num) AS n FROM minutes WHERE metric = '{}'"
    assert rows(store, told.format("wall_ms")) == [{"n": NUM}]
    assert rows(store, told.format("e2e_ms")) == [{"n": NUM + 2}]


def test_once_kept_a_trace_stays_whatever_comes_of_it(
    otlp: Any, open_half: Any, far: FarStore, rollup: Rollup
) -> None:
    half = open_half()
    half.put(otlp.canonical(*workflow(otlp, 1)))  # the first of all is rare, and would be dropped
    half.put(otlp.canonical(*workflow(otlp, 2)))
    _, call = workflow(otlp, 1)
    half.put(otlp.canonical({**call, "span_id": b"lateline"}))
    half.send()
    found = rows(settled(far, rollup), "SELECT num_spans, weight FROM traces")
    assert found == [{"num_spans": 3, "weight": 1.0}]


def test_what_waits_survives_a_restart_and_is_there_once(
    otlp: Any, open_half: Any, far: FarStore, rollup: Rollup, tmp_path: Path
) -> None:
    spans = [s for number in range(NUM) for s in otlp.canonical(*workflow(otlp, number))]
    half = open_half(replace(RULES, quiet_s=3600.0))
    half.put(spans)
    assert half.relay.num_waiting() == 0  # none is decided
    half.relay.store.close()
    half = open_half()
    half.writer.settle()
    half.writer.save()
    assert half.relay.num_waiting() == KEPT
    half.relay.store.close()
    half = open_half()
    assert half.relay.num_waiting() == KEPT
    half.send()
    (tmp_path / UNDECIDED_FOLDER / SENT).unlink()  # killed before it was written down
    half.relay.store.close()
    half = open_half()
    half.send()
    store = settled(far, rollup)
    assert store.num_spans() == 2 * KEPT
    total = "SELECT sum(num) AS n FROM minutes WHERE metric = 'wall_ms'"
    assert rows(store, total) == [{"n": NUM}]


def test_of_many_that_wait_the_ids_are_looked_up(
    otlp: Any, open_half: Any, far: FarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_QUEUED", 3)
    monkeypatch.setattr(module, "_TRACES_AT_ONCE", 1)
    half = open_half(replace(RULES, rest=1.0))
    for number in range(10):
        half.put(otlp.canonical(*workflow(otlp, number)))
    assert half.relay.num_waiting() == 10
    half.send()
    assert half.relay.num_waiting() == 0
    with far.reached() as store:
        assert store.num_spans() == 20


def test_files_of_days_that_are_over_go_when_all_of_them_is_sent(
    otlp: Any, open_half: Any, far: FarStore
) -> None:
    half = open_half(replace(RULES, rest=1.0))
    old = [
        span._replace(received_ns=BEGAN_NS - 3 * 86_400 * SECOND)
        for number in (4, 8)
        for span in otlp.canonical(*workflow(otlp, number))
    ]
    half.put(old[:2])
    half.writer.write(to_arrow(SPANS, old[2:]))  # never rolled up
    half.put(otlp.canonical(*workflow(otlp, 12)))
    files = half.relay.folder.glob("spans-*.duckdb")
    assert len(list(files)) == 2
    half.send()
    assert len(list(half.relay.folder.glob("spans-*.duckdb"))) == 1
    with far.reached() as store:
        assert store.num_spans() == 6


def test_without_a_roll_up_nothing_could_be_decided(tmp_path: Path, far: FarStore) -> None:
    health = Health()
    relay = Relay(far, tmp_path, health, Policy(), Limits())
    with pytest.raises(UsageError, match="roll-ups"):
        RelayWriter(relay, None, health, Policy(), RULES)
    relay.store.close()


def test_pseudonyms_are_made_with_the_key_that_all_share(
    otlp: Any, open_half: Any, far: FarStore
) -> None:
    half = open_half()
    body = otlp.body([otlp.span(attributes={"user.id": "ann"})])
    first = half.writer.read([Received(body, Format.PROTOBUF, 1)])["attributes"].to_pylist()
    half.relay.store.close()
    far.close()  # it is known here by now
    again = open_half().writer.read([Received(body, Format.PROTOBUF, 1)])
    assert again["attributes"].to_pylist() == first
    assert "ann" not in str(first)
