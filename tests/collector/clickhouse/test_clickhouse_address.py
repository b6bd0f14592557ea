"""Addresses, and that no credentials are ever told."""

import logging

import pytest

from longpole.errors import LongpoleError, StoreBusy, UsageError
from longpole_collector.stores.clickhouse.address import Address, parse
from longpole_collector.stores.clickhouse.client import Client, told
from longpole_collector.stores.clickhouse.opening import open_reader

WORD = "s3cret-Word/#"


def test_an_address_names_server_database_and_what_else_is_said() -> None:
    found = parse("clickhouses://ann:pa%20ss@db.example:9443/traces?ttl_days=30&cluster=main")
    assert (found.host, found.port, found.database) == ("db.example", 9443, "traces")
    assert (found.user, found.password) == ("ann", "pa ss")
    assert (found.ttl_days, found.cluster, found.is_replicated) == (30, "main", False)
    plain = parse("clickhouse://localhost")
    assert (plain.port, plain.database, plain.schema) == (8123, "longpole", "own")


def test_with_the_collectors_schema_the_database_is_where_its_table_lies() -> None:
    found = parse("clickhouse://h/otel?schema=otel&own=mine")
    assert (found.source, found.database) == ("otel.otel_traces", "mine")
    assert parse("clickhouse://h?schema=otel&table=spans").source == "default.spans"


def test_credentials_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGPOLE_CLICKHOUSE_USER", "ann")
    monkeypatch.setenv("LONGPOLE_CLICKHOUSE_PASSWORD", WORD)
    found = parse("clickhouse://h/db")
    assert (found.user, found.password) == ("ann", WORD)


@pytest.mark.parametrize(
    "text",
    [
        "http://h/db",
        "clickhouse://h:port/db",
        "clickhouse://h/a.b",
        "clickhouse://h/db?schema=other",
        "clickhouse://h/db?nonsense=1",
        "clickhouse://h/db?ttl_days=0",
        "clickhouse://h/db?replicated=yes",
        "clickhouse://h/db?cluster=a'b",
        "clickhouse://h/longpole?schema=otel",
        "clickhouse://h/otel?schema=otel&table=a;drop",
    ],
)
def test_what_is_no_address_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["clickhouse://zoe:{}@h:port/db", "clickhouse://zoe:{}@h/a.b"])
def test_a_broken_address_does_not_tell_its_credentials(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text.format("s3cret-Word"))
    assert "s3cret-Word" not in str(caught.value)
    assert "zoe" not in str(caught.value)


def test_an_address_as_text_has_no_credentials() -> None:
    found = parse("clickhouse://ann:word@h/db")
    assert str(found) == "clickhouse://h:8123/db"
    assert "word" not in repr(found)


def test_nobody_there_is_said_without_credentials(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(LongpoleError) as caught:
        open_reader("clickhouse://ann:s3cret-Word@127.0.0.1:9/db?timeout_s=1")
    assert caught.value.exit_code == 5
    assert "127.0.0.1:9" in str(caught.value)
    assert "s3cret-Word" not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("code", "exit_code", "says"),
    [
        (516, 2, "LONGPOLE_CLICKHOUSE_PASSWORD"),
        (164, 5, "does not let this user"),
        (243, 5, "disk"),
        (242, 5, "busy"),
        (159, 1, "longer than"),
        (396, 1, "rows"),
        (60, 5, "no such table"),
        (62, 1, "Syntax error"),
    ],
)
def test_errors_of_a_server_become_ours(code: int, exit_code: int, says: str) -> None:
    address = Address("clickhouse", "h", 8123, "db", user="ann", password=WORD)
    text = f"Code: {code}. DB::Exception: Syntax error at ann:{WORD}. (NAME) (version 26.9)"
    found = told(text, address)
    assert found.exit_code == exit_code
    assert says in str(found)
    assert WORD not in str(found)
    assert "ann" not in str(found)


def test_in_process_the_same_client_is_used(engine: Client) -> None:
    assert engine.ask("SELECT 1 AS one")["one"].to_pylist() == [1]


def test_a_short_name_of_a_user_garbles_no_message() -> None:
    address = Address("clickhouse", "h", 8123, "db", user="o", password=WORD)
    said = str(told(f"HTTPConnectionPool: Read timed out for o:{WORD} (read timeout=12)", address))
    assert said.endswith(": timed out")
    assert WORD not in said
    assert str(told(f"Code: 62. DB::Exception: o asked: {WORD}", address)) == "*** asked: ***"


def test_a_missing_shard_is_named() -> None:
    said = (
        "Code: 279. DB::Exception: All connection tries failed. Log: \n\n"
        "Code: 210. DB::NetException: Connection refused (shard2-a:9000). (NETWORK_ERROR)\n"
        "Code: 209. DB::NetException: Timeout exceeded while connecting to socket "
        "(shard2-b:9000, 10.0.0.7, 1000 ms). (SOCKET_TIMEOUT)\n\n: While executing Remote."
    )
    error = told(said, parse("clickhouse://db/longpole?cluster=main"))
    assert isinstance(error, StoreBusy)
    assert str(error).endswith("no server of it answers: shard2-a:9000, shard2-b:9000")
