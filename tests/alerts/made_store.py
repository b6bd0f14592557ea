"""A store in memory with the views' columns, and requests that begin when a test says."""

import duckdb
import polars as pl

from longpole.errors import Unreachable
from longpole.vocab import keys
from longpole_collector.stores.duckdb import DuckStore

MINUTE_NS = 60 * 10**9
VIEWS = ("traces", "calls", "trace_stages")
QUALITY = f"{keys.OUTCOME_FACT_PREFIX}quality"


def _empty():
    store = DuckStore()
    found = {view: store.sql(f"SELECT * FROM {view} LIMIT 0") for view in (*VIEWS, "spans")}
    store.close()
    return found


EMPTY = _empty()


class MadeStore:
    """A reader; ``is_down`` makes it unreachable. Counts what it was asked."""

    def __init__(self):
        self.is_down = False
        self.asked = []
        self._later = []
        self._num = 0
        self._db = duckdb.connect()
        self._quality = []
        for view, table in EMPTY.items():
            self._db.register("empty", table)
            self._db.execute(f"CREATE TABLE {view} AS SELECT * FROM empty")
            self._db.unregister("empty")

    def sql(self, query, params=()):
        if self.is_down:
            raise Unreachable("the store is closed")
        self._flush()
        self.asked.append((query, list(params)))
        return self._db.cursor().sql(query, params=list(params) or None).to_arrow_table()

    def close(self):
        self._db.close()

    def add(self, minute, good=0, bad=0, *, route="search", prompt="v41", bad_prompt=None):
        """Requests that begin in a minute since the epoch: TTFT 0.1 s, or 5 s for bad ones."""
        rows = [False] * good + [True] * bad
        self.add_rows(
            [
                {
                    "start_ns": minute * MINUTE_NS + place * (MINUTE_NS // max(len(rows), 1)),
                    "is_bad": is_bad,
                    "route": route,
                    "prompt_version": (bad_prompt or prompt) if is_bad else prompt,
                }
                for place, is_bad in enumerate(rows)
            ]
        )

    def add_rows(self, rows):
        if not rows:
            return
        traces, calls, stages = [], [], []
        for row in rows:
            self._num += 1
            ttft = 5000.0 if row["is_bad"] else 100.0
            ids = {"trace_id": f"{self._num:032x}", "start_ns": row["start_ns"]}
            ids["end_ns"] = row["start_ns"] + int(ttft * 1e6)
            if "quality" in row:
                self._quality.append((ids["trace_id"], row["start_ns"], str(row["quality"])))
            named = {name: row.get(name) for name in ("route", "prompt_version", "outcome")}
            wall = int((ttft + 50) * 1e6)
            traces.append(
                ids
                | named
                | {"num_spans": 2, "num_calls": 1, "wall_ms": ttft + 50, "wall_ns": wall}
                | {"num_tools": 0, "num_retries": 0, "flags": []}
            )
            calls.append(ids | named | {"span_id": f"{self._num:016x}", "ttft_ms": ttft})
            for stage, spent in (("prefill", ttft), ("later_decode", 50.0)):
                stages.append({"trace_id": ids["trace_id"], "stage": stage, "critical_ms": spent})
        self._later.append((traces, calls, stages))

    def _flush(self):
        told, self._quality = self._quality, []
        if told:
            self._db.executemany(
                "INSERT INTO spans (trace_id, start_ns, attributes) "
                f"VALUES (?, ?, MAP {{'{QUALITY}': ?}})",
                told,
            )
        later, self._later = self._later, []
        if not later:
            return
        for view, parts in zip(VIEWS, zip(*later, strict=True), strict=True):
            given = [row for part in parts for row in part]
            frame = pl.DataFrame(given, infer_schema_length=None).to_arrow()
            self._db.register("given", frame)
            self._db.execute(f"INSERT INTO {view} BY NAME SELECT * FROM given")
            self._db.unregister("given")
