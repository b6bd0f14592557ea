"""All spans go over and come back; killed in the middle it goes on; nothing is doubled or mixed."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from longpole import cli
from longpole.errors import UsageError
from longpole.vocab import Kind, Rollup, Span
from longpole_collector import migrate as module
from longpole_collector.migrate import _chunks, migrate
from longpole_collector.migrate_sides import DAY_NS, MINUTE_NS, Folder, Hasher, Server
from longpole_collector.rollup import load_rollup
from longpole_collector.stores.clickhouse.store import ClickStore
from longpole_collector.stores.duckdb import DuckStore
from longpole_collector.writer import Writer

from .both import compare

URL = "chdb://?database=shared"
FIRST_DAY = 20_700


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """Nine spans of five traces, received on two days; one trace over both of them."""
    made: list[Span] = []
    for number in range(9):
        trace = 1 if number == 8 else number // 2 + 1
        at_ns = (FIRST_DAY + number // 5) * DAY_NS + number * MINUTE_NS
        made.append(
            Span(
                trace_id=f"{40 * trace:02x}" * 16, span_id=f"{number + 1:016x}", parent_id=None,
                name="chat", kind=Kind.CLIENT, start_ns=at_ns - 10**9, end_ns=at_ns,
                received_ns=at_ns, service="app", instance_id="app", scope="longpole",
                dialect="longpole", status="unset", operation="chat", is_model_call=True,
                request_model="m", attributes={"b": "y\0ü😀", "a": str(number)},
                flags=["f"] if number % 2 else [],
                events='[{"name":"e","time_ns":5,"attributes":{"x":"1"}}]' if number == 2 else None,
            )
        )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spans: list[Span], _rollup: Rollup) -> Path:
    """A data folder with these spans; only to be read."""
    path = tmp_path_factory.mktemp("folder") / "from"
    fill(path, spans, _rollup)
    return path


@pytest.fixture(scope="module")
def _rollup() -> Rollup:
    found = load_rollup()
    assert found is not None
    return found


def fill(path: Path, spans: list[Span], rollup: Rollup) -> None:
    store = DuckStore(path)
    writer = Writer(store, rollup)
    for day in sorted({span.received_ns // DAY_NS for span in spans}):
        writer.write_spans([span for span in spans if span.received_ns // DAY_NS == day])
    writer.settle(everything=True)
    store.close()


def differences(one: Path, other: Path | ClickStore) -> str:
    """How the views of two stores differ."""
    first = DuckStore(one, is_read_only=True)
    second = DuckStore(other, is_read_only=True) if isinstance(other, Path) else other
    said = ""
    for view in ("spans", "calls", "traces", "trace_stages"):
        wanted, found = (store.sql(f"SELECT * FROM {view}") for store in (first, second))
        assert wanted.num_rows > 0
        said += compare(wanted, found)
    first.close()
    if isinstance(other, Path):
        second.close()
    return said


def test_there_and_back_everything_is_the_same(
    folder: Path, store: ClickStore, tmp_path: Path
) -> None:
    there = migrate(str(folder), URL)
    assert [(day.num_spans, day.num_copied) for day in there] == [(5, 5), (4, 4)]
    assert not differences(folder, store)
    back = migrate(URL, str(tmp_path / "back"))
    assert [day.checksum for day in back] == [day.checksum for day in there]
    assert not differences(folder, tmp_path / "back")
    for source, target in ((str(folder), URL), (URL, str(tmp_path / "back"))):
        again = migrate(source, target)
        assert [(day.num_spans, day.num_copied) for day in again] == [(5, 0), (4, 0)]
    assert store.num_spans() == 9


@pytest.mark.parametrize("kind", [Server, Folder])
def test_killed_at_any_part_it_goes_on_and_nothing_is_doubled(
    folder: Path, store: ClickStore, tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [str(folder), URL, str(tmp_path / "back")]
    if kind is Folder:
        migrate(*places[:2])
        places = places[1:]
    monkeypatch.setattr(module, "CHUNK_SPANS", 3)
    add = kind.add
    calls = 0

    def dying(self: Any, rows: pa.Table) -> None:
        nonlocal calls
        calls += 1
        add(self, rows.slice(0, 1) if calls % 3 == 2 else rows)
        if calls % 3 == 2:  # half of a part is there
            raise Killed

    monkeypatch.setattr(kind, "add", dying)
    for _ in range(9):
        try:
            migrate(*places[:2])
            break
        except Killed:
            continue
    assert calls > 4
    if kind is Folder:
        assert not differences(folder, tmp_path / "back")
    else:
        assert not differences(folder, store)
        assert store.num_spans() == 9


def test_other_spans_of_a_day_are_not_mixed_up_unless_told(
    otlp, folder: Path, store: ClickStore, spans: list[Span]
) -> None:
    (stranger,) = otlp.canonical(otlp.span())
    store.append([stranger._replace(received_ns=spans[6].received_ns)])
    with pytest.raises(UsageError, match=r"1 spans of 2026-09-05 .* --merge"):
        migrate(str(folder), URL)
    assert store.num_spans() == 6  # the day before is there, of that day nothing more
    done = migrate(str(folder), URL, is_merging=True)
    assert [day.num_more for day in done] == [0, 1]
    assert store.num_spans() == 10


def test_a_span_that_is_there_but_says_something_else_is_a_difference(
    folder: Path, store: ClickStore, spans: list[Span]
) -> None:
    store.append([spans[0]._replace(attributes=spans[0].attributes | {"a": "other"})])
    with pytest.raises(UsageError, match="otherwise"):
        migrate(str(folder), URL)


def test_what_was_sent_twice_over_midnight_is_one_span(
    store: ClickStore, spans: list[Span], tmp_path: Path
) -> None:
    store.append(spans)
    again = spans[4]._replace(received_ns=spans[5].received_ns)
    from longpole_collector.stores.schema import SPANS, to_arrow

    store.insert(to_arrow(SPANS, [again]))
    done = migrate(URL, str(tmp_path / "to"))
    assert sum(day.num_elsewhere for day in done) <= 1
    found = DuckStore(tmp_path / "to", is_read_only=True)
    assert found.sql("SELECT count(*) AS n FROM spans")["n"][0].as_py() == 9
    found.close()


@pytest.mark.parametrize(
    "minutes",
    [
        [(7, 1)],
        [(0, 5), (1, 5), (2, 25), (3, 1)],
        [(0, 100), (1439, 100)],
        [(5, 4), (6, 4), (7, 4)],
    ],
)
def test_parts_cover_a_day_without_a_gap(
    minutes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_SPANS", 10)
    day = 3
    chunks = list(_chunks(day, [(day * 1440 + minute, num) for minute, num in minutes]))
    stretches = sorted({(chunk.since_ns, chunk.until_ns) for chunk in chunks})
    assert stretches[0][0] == day * DAY_NS
    assert stretches[-1][1] == (day + 1) * DAY_NS
    assert all(one[1] == other[0] for one, other in pairwise(stretches))
    for stretch in stretches:
        parts = [chunk for chunk in chunks if chunk[:2] == stretch]
        assert [part.part for part in parts] == list(range(parts[0].of))


def test_the_checksum_does_not_depend_on_the_order_but_on_every_column(folder: Path) -> None:
    side = Folder(folder, is_written=False)
    rows = side.rows(module.Chunk(0, 1 << 62))
    side.close()
    hasher = Hasher()
    digest = module.digest_of(hasher.hashes(rows))
    assert module.digest_of(hasher.hashes(rows.sort_by([("span_id", "descending")]))) == digest
    for field in rows.schema:
        changed = rows.set_column(
            rows.schema.get_field_index(field.name), field.name, _other(rows[field.name])
        )
        assert module.digest_of(hasher.hashes(changed)) != digest, field.name
    hasher.close()


def _other(column: pa.ChunkedArray) -> pa.Array:
    """The same with one value changed."""
    values = column.to_pylist()
    kind = column.type
    if pa.types.is_boolean(kind):
        values[0] = not values[0]
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values[0] = (values[0] or 0) + 1
    elif pa.types.is_list(kind):
        values[0] = [*(values[0] or []), "x"]
    else:
        values[0] = '{"x":"y"}'
    return pa.array(values, kind)


def test_the_command_shows_how_far_it_is_and_what_it_did(folder: Path, store: ClickStore) -> None:
    words = ["migrate", "--from", str(folder), "--to", URL]
    done = CliRunner().invoke(cli.main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "longpole.migrate/1"
    assert [day["num_copied"] for day in document["days"]] == [5, 4]
    assert "day 2 of 2" in done.stderr
    assert "traces settled" in done.stderr
    again = CliRunner().invoke(cli.main, words)
    assert again.stdout.count("copied 0") == 2


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        (URL, URL, 2),
        ("a", "b", 2),
        ("http://127.0.0.1:1", URL, 2),
        ("nothing-is-here", URL, 5),
    ],
)
def test_what_cannot_be_moved_is_said(
    source: str, target: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.main, ["migrate", "--from", source, "--to", target])
    assert done.exit_code == code
    assert not list(tmp_path.iterdir())
