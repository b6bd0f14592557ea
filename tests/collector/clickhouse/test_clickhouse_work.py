"""Workers: each has its share, and none leaves a thing wrong, whoever stops or is beside it."""

import json
import math
import time
from threading import Event, Thread

import pytest
from click.testing import CliRunner

from longpole import cli
from longpole.errors import UsageError
from longpole.vocab import Rollup, keys
from longpole_collector.stores.clickhouse import due
from longpole_collector.stores.clickhouse.client import Client
from longpole_collector.stores.clickhouse.derived import Derived
from longpole_collector.stores.clickhouse.due import Shard, Window, batches, shard_of
from longpole_collector.stores.clickhouse.settling import Settling
from longpole_collector.stores.clickhouse.store import ClickStore
from longpole_collector.work import Work, work

START = 1_790_000_000 * 10**9


class Killed(BaseException):
    """The process is gone."""


def call(otlp, trace: int, span: int, parent: int = 0, **given: object) -> dict[str, object]:
    told = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m"}
    above = {"parent_span_id": bytes([parent] * 8)} if parent else {}
    return otlp.span(
        trace_id=bytes([trace] * 16), span_id=bytes([span] * 8), attributes=told, **above, **given
    )


def state(store: ClickStore) -> dict[str, list[tuple[object, ...]]]:
    """What the views say of every trace."""
    queries = {
        "calls": "SELECT trace_id, span_id FROM calls ORDER BY ALL",
        "traces": "SELECT trace_id, num_spans, num_calls, wall_ns FROM traces ORDER BY ALL",
        "stages": "SELECT trace_id, sum(critical_ns) FROM trace_stages GROUP BY ALL ORDER BY ALL",
    }
    return {
        name: [tuple(row.values()) for row in store.sql(query).to_pylist()]
        for name, query in queries.items()
    }


# --- shares --------------------------------------------------------------------------------------
@pytest.mark.parametrize("of", [1, 2, 3, 7, 64])
def test_shards_share_all_ids_and_no_id_twice(engine: Client, of: int) -> None:
    asked = "SELECT lower(hex(sipHash128(number))) AS trace_id FROM numbers(500)"
    edges = "UNION ALL SELECT arrayJoin([repeat('0', 32), repeat('f', 32)]) AS trace_id"
    owners = " + ".join(f"({Shard(number, of).condition})" for number in range(1, of + 1))
    found = engine.ask(f"SELECT min(n) AS a, max(n) AS b FROM (SELECT {owners} AS n "
                       f"FROM ({asked} {edges}))")  # fmt: skip
    assert found.to_pylist() == [{"a": 1, "b": 1}]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="i/n"):
        shard_of(text)


def test_a_worker_leaves_the_others_traces_to_them(otlp, store: ClickStore, rollup: Rollup) -> None:
    store.append(otlp.canonical(*(call(otlp, trace, 1) for trace in (1, 2, 200, 201, 202))))
    first, second = (Settling(store.client, rollup, shard=Shard(n, 2)) for n in (1, 2))
    assert second.settle() == 3
    assert [row[0][:2] for row in state(store)["traces"]] == ["c8", "c9", "ca"]
    assert first.settle() == 2
    assert len(state(store)["traces"]) == 5
    assert first.settle() == second.settle() == 0


def test_large_heaps_are_settled_in_parts(
    otlp, store: ClickStore, rollup: Rollup, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(otlp.canonical(*(call(otlp, trace, s) for trace in range(1, 8) for s in (1, 2))))
    monkeypatch.setattr(due, "BATCH_SPANS", 4)
    settling = Settling(store.client, rollup)
    found, _ = settling._finding.find(None, None, is_busy=False)
    parts = list(batches(found))
    assert len(parts) > 2
    assert sum(len(part.trace_ids) for part in parts) == 7
    assert settling.settle() == 7


def test_where_looking_takes_long_rootless_and_late_traces_wait_for_a_thorough_look(
    otlp, store: ClickStore, rollup: Rollup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "QUIET_NS", 0)
    settling = Settling(store.client, rollup)
    assert settling.settle(is_busy=True) == 0  # the first one is thorough
    settling._finding._thorough_s = math.inf
    lately = time.time_ns() - 10**9
    whole, rootless, late = (
        [call(otlp, 1, 1), call(otlp, 1, 2, parent=1)], [call(otlp, 2, 2, parent=1)],
        [call(otlp, 3, 1)],
    )  # fmt: skip
    for span in (*whole, *rootless):
        span |= {"start_time_unix_nano": lately, "end_time_unix_nano": lately + 10**6}
    store.append(otlp.canonical(*whole, *rootless, *late))
    assert settling.settle(is_busy=True) == 1
    assert [row[0][:2] for row in state(store)["traces"]] == ["01"]
    settling._finding._thorough_s = 0.0
    assert settling.settle(is_busy=True) == 2
    assert len(state(store)["traces"]) == 3


def test_how_long_the_first_look_takes_puts_off_no_thorough_one(
    otlp, store: ClickStore, rollup: Rollup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "QUIET_NS", 0)
    monkeypatch.setattr(due, "_CHEAP_S", -1.0)
    monkeypatch.setattr(due, "_REST", 1000)
    settling = Settling(store.client, rollup)
    assert settling.settle(is_busy=True) == 0
    for trace, num_found in ((1, 1), (2, 0)):  # the second look is thorough, and puts off a third
        store.append(otlp.canonical(call(otlp, trace, 1)))
        assert settling.settle(is_busy=True) == num_found


# --- nothing wrong is left -----------------------------------------------------------------------
@pytest.mark.parametrize("at", range(5))
def test_a_worker_killed_between_any_two_steps_leaves_nothing_wrong(
    otlp, store: ClickStore, rollup: Rollup, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    inner, outer = call(otlp, 1, 2, parent=1), call(otlp, 1, 1, start_time_unix_nano=START - 10**9)
    store.append(otlp.canonical(inner, call(otlp, 2, 1)))
    Settling(store.client, rollup).settle()
    store.append(otlp.canonical(outer))  # late, and it changes which span is the call
    insert, steps = store.client.insert, iter(range(100))

    def dying(*args: object) -> None:
        if next(steps) == at:
            raise Killed
        insert(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store.client, "insert", dying)
    try:
        Settling(store.client, rollup).settle()
    except Killed:
        pass
    else:
        assert at >= 4, "there were fewer steps than this test thinks"
    monkeypatch.undo()
    Settling(store.client, rollup).settle()
    found = state(store)
    assert [span for _, span in found["calls"]] == [f"{1:02x}" * 8] * 2
    assert [row[1:3] for row in found["traces"]] == [(2, 1), (1, 1)]
    assert [row[1] for row in found["stages"]] == [row[3] for row in found["traces"]]
    assert Settling(store.client, rollup).settle() == 0


def test_one_who_began_earlier_and_ends_later_leaves_nothing_of_his_own(
    otlp, store: ClickStore, rollup: Rollup, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(otlp.canonical(call(otlp, 1, 2, parent=1)))
    replace = Derived.replace

    def overtaken(self: Derived, *args: object) -> None:
        monkeypatch.setattr(Derived, "replace", replace)
        store.append(otlp.canonical(call(otlp, 1, 1)))
        assert Settling(store.client, rollup).settle() == 1
        replace(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Derived, "replace", overtaken)
    assert Settling(store.client, rollup).settle() == 1
    found = state(store)
    assert [span for _, span in found["calls"]] == ["01" * 8]
    assert [row[1:3] for row in found["traces"]] == [(2, 1)]


def test_traces_that_tell_of_one_call_are_settled_together_over_shards(
    otlp, store: ClickStore, rollup: Rollup
) -> None:
    told = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m", keys.RESPONSE_ID: "r1"}
    one, other = (
        otlp.span(trace_id=bytes([t] * 16), span_id=bytes([t] * 8), attributes=told)
        for t in (1, 200)
    )
    (span,), (twin,) = otlp.canonical(one), otlp.canonical(other)
    twin = twin._replace(scope="another library")
    store.append([span])
    first, second = (Settling(store.client, rollup, shard=Shard(n, 2)) for n in (1, 2))
    assert first.settle() == 1
    store.append([twin])
    assert first.settle() == 0
    assert second.settle() == 2
    assert len(state(store)["calls"]) == 1
    assert sorted(row[2] for row in state(store)["traces"]) == [0, 1]


def test_attempts_that_requests_tell_are_written_into_the_span_once(
    otlp, store: ClickStore, rollup: Rollup
) -> None:
    url = {"http.request.method": "POST", "url.full": "https://api.example.com/chat"}
    tries = [
        otlp.span(
            trace_id=b"t" * 16,
            span_id=bytes([number] * 8),
            parent_span_id=b"c" * 8,
            kind=3,
            name="POST",
            attributes=url,
            start_time_unix_nano=START + number * 10**6,
            end_time_unix_nano=START + number * 10**6 + 1000,
            status=(2, "busy") if number == 1 else None,
        )
        for number in (1, 2)
    ]
    told = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m"}
    outer = otlp.span(
        trace_id=b"t" * 16, span_id=b"c" * 8, kind=3, attributes=told, start_time_unix_nano=START
    )
    plain = otlp.span(trace_id=b"p" * 16, attributes={"kept": "as it is"})
    store.append(otlp.canonical(outer, *tries, plain))
    assert Settling(store.client, rollup).settle() == 2
    for query in (
        "SELECT num_attempts, retry_ms AS ms FROM calls",
        "SELECT num_attempts, retry_ns / 1e6 AS ms FROM spans WHERE num_attempts IS NOT NULL",
    ):
        assert store.sql(query).to_pylist() == [{"num_attempts": 2, "ms": 1.0}]
    kept = store.sql("SELECT attributes FROM spans WHERE name = 'POST'")["attributes"].to_pylist()
    assert all(dict(each) == url for each in kept)
    assert Settling(store.client, rollup).settle() == 0
    assert store.num_spans() == 4


def test_a_call_that_two_spans_tell_of_has_the_answers_id_that_either_knows(
    otlp, store: ClickStore, rollup: Rollup
) -> None:
    told = {keys.OPERATION: "chat", keys.REQUEST_MODEL: "m"}
    outer = otlp.span(trace_id=b"t" * 16, span_id=b"o" * 8, attributes=told)
    inner = otlp.span(
        trace_id=b"t" * 16, span_id=b"i" * 8, parent_span_id=b"o" * 8,
        attributes=told | {keys.RESPONSE_ID: "inner's"},
    )  # fmt: skip
    alone = otlp.span(trace_id=b"a" * 16, attributes=told | {keys.RESPONSE_ID: "its own"})
    store.append(otlp.canonical(outer, inner, alone))
    Settling(store.client, rollup).settle()
    found = store.sql("SELECT response_id FROM calls ORDER BY 1")["response_id"].to_pylist()
    assert found == ["inner's", "its own"]


# --- the command ---------------------------------------------------------------------------------
def test_a_window_is_back_filled_whatever_was_noted(
    otlp, store: ClickStore, rollup: Rollup
) -> None:
    hour = 3_600 * 10**9
    store.append(
        otlp.canonical(
            *(
                call(otlp, t, 1, start_time_unix_nano=START + t * hour,
                     end_time_unix_nano=START + t * hour + 1)
                for t in range(1, 5)
            )
        )
    )  # fmt: skip
    settling = Settling(store.client, rollup)
    assert settling.settle(window=Window(START + 2 * hour, START + 4 * hour)) == 2
    assert [row[0][:2] for row in state(store)["traces"]] == ["02", "03"]
    assert settling.settle(window=Window(START + 2 * hour, START + 4 * hour)) == 0
    assert settling.settle() == 2


def test_a_worker_settles_what_comes_until_it_is_stopped(
    otlp, store: ClickStore, rollup: Rollup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "QUIET_NS", 0)
    monkeypatch.setattr(due, "_REST", 0)  # the spans are old: thorough looks alone find them
    stopping, rounds, said = Event(), Event(), list[str]()
    asked = Work("chdb://?database=shared", poll_s=0.01)
    thread = Thread(
        target=work, args=(asked, stopping, said.append, lambda num: num and rounds.set())
    )
    thread.start()
    try:
        for spans in ([call(otlp, 1, 2, parent=1)], [call(otlp, 1, 1), call(otlp, 2, 1)]):
            store.append(otlp.canonical(*spans))
            assert rounds.wait(60)
            rounds.clear()
        for _ in range(500):
            if len(state(store)["traces"]) == 2:
                break
    finally:
        stopping.set()
        thread.join()
    assert [span for _, span in state(store)["calls"]] == ["01" * 8] * 2
    assert said == []


def test_the_command_says_what_it_did(otlp, store: ClickStore) -> None:
    store.append(otlp.canonical(call(otlp, 1, 1), call(otlp, 200, 1)))
    url = ["work", "--url", "chdb://?database=shared", "--once"]
    for words, num in ((["--shards", "2/2"], 1), ([], 1), (["--since", "1h"], 0)):
        done = CliRunner().invoke(cli.main, [*url, *words, "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["num_traces"] == num


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--url", "http://127.0.0.1:4318", "--once"], "clickhouse://"),
        (["--url", "chdb://?database=shared", "--shards", "2/1", "--once"], "i/n"),
        (["--url", "chdb://?database=shared", "--since", "1h"], "--once"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], says: str) -> None:
    done = CliRunner().invoke(cli.main, ["work", *words])
    assert done.exit_code == 2
    assert says in done.output
