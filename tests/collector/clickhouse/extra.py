"""Whether ClickHouse can be tried here: the extra, and the engine in process."""

from importlib.util import find_spec

IS_THERE = all(find_spec(name) for name in ("chdb", "clickhouse_connect", "sqlglot"))
