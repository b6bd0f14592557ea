"""One ClickHouse engine in this process, a database a test, and the same spans in both stores."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from longpole.vocab import Kind, Rollup, Span, Stage

from .extra import IS_THERE

if not IS_THERE:
    collect_ignore_glob = ["test_clickhouse_*.py"]
else:
    from longpole_collector.importing import import_into
    from longpole_collector.rollup import load_rollup
    from longpole_collector.stores.clickhouse.address import Address, parse
    from longpole_collector.stores.clickhouse.client import Client
    from longpole_collector.stores.clickhouse.schema import TABLES, remember
    from longpole_collector.stores.clickhouse.settling import Settling
    from longpole_collector.stores.clickhouse.store import ClickStore
    from longpole_collector.stores.connection import Limits
    from longpole_collector.stores.duckdb import DuckStore
    from longpole_collector.stores.minutes import refresh
    from longpole_collector.stores.schema import SPANS, arrow_schema
    from longpole_collector.writer import Writer

    from .door import Door, serving

CORPUS = Path(__file__).parents[1] / "corpus"
DEMO = Path(__file__).parents[3] / "sample_data" / "demo.otlp.jsonl"
SERIAL = f"{0xABC1:032x}"
"""A workflow whose tools ran in a row, and in another one did not."""
_numbers = count()


class Pair(NamedTuple):
    """The same spans in the local store and in ClickHouse."""

    duck: DuckStore
    click: ClickStore


def serial_spans() -> list[Span]:
    """Three workflows of one route whose tools run in a row, in one of them at once."""
    found: list[Span] = []
    for number in range(3):
        start = 1_790_000_000_000_000_000 + number * 10**9
        for at, (name, begin, end) in enumerate(
            (("root", 0, 900), ("one", 10, 400), ("two", 410 if number else 20, 800))
        ):
            found.append(
                Span(
                    trace_id=f"{0xABC0 + number:032x}", span_id=f"{at + 1:016x}",
                    parent_id=f"{1:016x}" if at else None, name=name, kind=Kind.INTERNAL,
                    start_ns=start + begin * 10**6, end_ns=start + end * 10**6,
                    received_ns=start + 10**9, service="app", instance_id="app", scope="longpole",
                    dialect="longpole", status="unset", route="serial",
                    stage=Stage.TOOL if at else None,
                )
            )  # fmt: skip
    return found


def spans_of(store: DuckStore) -> Any:
    """The rows of a local store's span table."""
    names = ", ".join(arrow_schema(SPANS).names)
    with store.writing() as reader:
        return reader.sql(f"SELECT {names} FROM span_rows").to_arrow_table()


@pytest.fixture(scope="session")
def engine() -> Iterator[Client]:
    """Keeps the engine of this process alive, so that its databases last."""
    held = Client(parse("chdb://"))
    yield held
    held.close()


@pytest.fixture(scope="module")
def door(engine: Client) -> Iterator[Door]:
    """The engine by HTTP."""
    with serving() as found:
        yield found


@pytest.fixture(scope="session")
def rollup() -> Rollup:
    found = load_rollup()
    assert found is not None
    return found


@pytest.fixture
def address(engine: Client) -> Address:
    """A database that nobody has used."""
    return parse(f"chdb://?database=db{next(_numbers)}")


@pytest.fixture(scope="session")
def _shared(engine: Client) -> Iterator[ClickStore]:
    held = ClickStore(Client(parse("chdb://?database=shared")))
    yield held
    held.close()


@pytest.fixture
def store(_shared: ClickStore) -> ClickStore:
    """An empty store; its tables are made once, which takes longer than what most tests do."""
    for table in TABLES:
        _shared.client.tell(f"TRUNCATE TABLE {table}")
    remember(_shared.client)
    return _shared


@pytest.fixture
def fresh(address: Address) -> Iterator[ClickStore]:
    """A store in a database of its own."""
    held = ClickStore(Client(address))
    yield held
    held.close()


@pytest.fixture
def settle(store: ClickStore, rollup: Rollup) -> Callable[[], int]:
    return lambda: Settling(store.client, rollup).settle()


@pytest.fixture(scope="session")
def pair(engine: Client, rollup: Rollup) -> Iterator[Pair]:
    """Some of the captures and the demo's traces in both; only to be read."""
    duck = DuckStore(limits=Limits(memory="1GB"))
    writer = Writer(duck, rollup)
    for path in [*sorted(CORPUS.glob("*.otlp.pb"))[::6], DEMO]:
        import_into(writer, path)
    writer.write_spans(serial_spans())
    writer.settle(everything=True)
    refresh(duck, 1 << 62)
    click = ClickStore(Client(parse("chdb://?database=pair")))
    click.insert(spans_of(duck))
    Settling(click.client, rollup).settle()
    yield Pair(duck, click)
    click.close()
    duck.close()
