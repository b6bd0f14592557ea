"""The same store by HTTP: over a thin door that passes everything on to the engine in process."""

import logging
import re

import pytest

from longpole.errors import BadInput, StoreBusy, Unreachable, UsageError
from longpole_collector.stores import open_reader
from longpole_collector.stores.clickhouse.opening import import_files, open_store

from .both import compare
from .conftest import CORPUS, Pair
from .door import USER, WORD, Door


@pytest.fixture(scope="module")
def address(door: Door) -> str:
    return f"clickhouse://{USER}:{WORD}@{door.address}/by_http"


def test_files_go_in_and_are_read_back_by_http(pair: Pair, address: str, door: Door) -> None:
    files = sorted(CORPUS.glob("*.otlp.pb"))[::24]
    done = import_files(files, address)
    assert done.num_new == done.num_spans > 0
    assert import_files(files, address).num_new == 0
    reader = open_reader(url=address)
    ids = ",".join(reader.sql("SELECT DISTINCT trace_id FROM spans")["trace_id"].to_pylist())
    for view in ("calls", "traces", "trace_stages"):
        query = f"SELECT * FROM {view} WHERE trace_id IN (SELECT unnest(string_split(?, ',')))"
        if view == "calls":
            query = query.replace("*", "* EXCLUDE (conversation_id)", 1)
        assert not compare(pair.duck.sql(query, [ids]), reader.sql(query, [ids]))
    reader.close()
    assert any("INSERT INTO" in query for query in door.asked)


@pytest.mark.parametrize(
    ("failure", "error", "says"),
    [
        ("Code: 242. DB::Exception: Table is in readonly mode. (X)", StoreBusy, "busy"),
        ("Code: 164. DB::Exception: ann: Cannot modify. (X)", Unreachable, "does not let"),
        ("Code: 243. DB::Exception: No free space. (X)", Unreachable, "full"),
        ("Code: 159. DB::Exception: Timeout exceeded. (X)", BadInput, "longer than"),
        ("Code: 241. DB::Exception: Memory limit. (X)", StoreBusy, "busy"),
        ("what is this", Unreachable, "no ClickHouse answers"),
    ],
)
def test_what_a_server_refuses_is_told_in_one_sentence(
    door: Door, address: str, failure: str, error: type[Exception], says: str
) -> None:
    store = open_store(address)
    door.failure = failure
    try:
        with pytest.raises(error, match=says) as caught:
            store.sql("SELECT count(*) FROM spans")
    finally:
        door.failure = None
        store.close()
    assert WORD not in str(caught.value)
    assert not re.search(rf"\b{USER}\b", str(caught.value))


def test_a_wrong_word_is_told_without_it(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(UsageError, match="LONGPOLE_CLICKHOUSE_PASSWORD") as caught:
        open_reader(url=f"clickhouse://{USER}:wrong-Word@{door.address}/by_http")
    assert "wrong-Word" not in str(caught.value) + caplog.text
