"""What a weekly report costs over a million calls, read, reckoned and written in all three forms.

A store in memory with the collector's views: seven of ten calls in the week, the others in the
three weeks before; eight routes, three promises over 30 days, one planted cause. Wall time.

    python -m benchmarks.analytics.report [--calls 1000000]
"""

# ruff: noqa: S608 - all statements are of names and numbers of this file
from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

import duckdb

from longpole.vocab import keys
from longpole_analytics.prices import shipped
from longpole_analytics.report.build import build
from longpole_analytics.report.html import page
from longpole_analytics.report.markdown import text
from longpole_analytics.report.reading import Setup, read
from longpole_analytics.report.weeks import week
from longpole_analytics.report_command import written
from longpole_analytics.slo.objectives import from_tables
from longpole_collector.stores.duckdb import DuckStore

NEED_S = 20.0
NEED_BYTES = 500_000
WEEK = week("2026-W37", "Europe/Berlin")
DAY_NS = 86_400 * 10**9
VIEWS = ("traces", "calls", "trace_stages", "spans")
PROMISE = {"metric": "ttft_ms", "threshold": 1500, "target": 0.98, "period": "30d"}
PROMISES = {
    "all": PROMISE,
    "one": PROMISE | {"where": "route = 'r1'"},
    "whole": PROMISE | {"metric": "e2e_ms", "threshold": 6000, "target": 0.9},
}


class Store:
    """The views as tables in memory."""

    def __init__(self, num: int) -> None:
        self._con = duckdb.connect()
        empty = DuckStore()
        for view in VIEWS:
            self._con.register("given", empty.sql(f"SELECT * FROM {view} LIMIT 0"))
            self._con.execute(f"CREATE TABLE {view} AS SELECT * FROM given")
            self._con.unregister("given")
        empty.close()
        self._fill(num)

    def sql(self, query: str, params: Any = ()) -> Any:
        """As of a reader."""
        return self._con.cursor().sql(query, params=list(params) or None).to_arrow_table()

    def close(self) -> None:
        """Let go of it."""
        self._con.close()

    def _fill(self, num: int) -> None:
        now = num * 7 // 10
        step, before = 7 * DAY_NS // now, 21 * DAY_NS // (num - now)
        self._con.execute(
            f"""CREATE TABLE g AS SELECT i, lpad(printf('%x', i + 1), 32, '0') AS trace_id,
            lpad(printf('%x', i + 1), 16, '0') AS span_id,
            CASE WHEN i < {now} THEN {WEEK.since_ns} + i * {step}::BIGINT
                 ELSE {WEEK.since_ns} - (i - {now} + 1) * {before}::BIGINT END AS start_ns,
            'r' || (i % 8) AS route, 'v' || (hash(i * 7) % 2) AS route_version,
            'p' || (hash(i) % 4) AS prompt_version, 'm' || (hash(i * 3) % 3) AS response_model,
            (100 + hash(i * 11) % 4000)::BIGINT AS input_tokens,
            (20 + hash(i * 13) % 400)::BIGINT AS output_tokens,
            (hash(i * 17) % 200)::DOUBLE + CASE WHEN hash(i) % 4 = 2 AND hash(i * 3) % 3 = 1
                AND hash(i * 19) % 10 < 4 THEN 5000 ELSE 0 END AS queue FROM range({num}) t(i)"""
        )
        self._con.execute(
            """CREATE TABLE h AS SELECT *, input_tokens / 4.0 AS prefill, 20.0 AS first_decode,
            output_tokens * 8.0 AS later_decode, queue + input_tokens / 4.0 + 20.0 AS ttft_ms,
            queue + input_tokens / 4.0 + 20.0 + output_tokens * 8.0 AS wall_ms FROM g"""
        )
        same = "trace_id, start_ns, start_ns + (wall_ms * 1e6)::BIGINT AS end_ns, route"
        versions = "route_version, prompt_version, 'accepted' AS outcome, 'app' AS service"
        tokens = "input_tokens, input_tokens // 2 AS cached_input_tokens, output_tokens"
        self._con.execute(
            f"""INSERT INTO traces BY NAME SELECT {same}, {versions}, {tokens}, wall_ms,
            (wall_ms * 1e6)::BIGINT AS wall_ns, 1 AS num_calls, 1 AS num_spans, 0 AS num_tools,
            0 AS num_retries, []::VARCHAR[] AS flags FROM h"""
        )
        self._con.execute(
            f"""INSERT INTO calls BY NAME SELECT {same}, {versions}, {tokens}, span_id,
            'openai' AS provider, 'gpt-4o' AS request_model, response_model, ttft_ms,
            8.0 AS tpot_ms, wall_ms AS e2e_ms, queue AS queue_ms, prefill AS prefill_ms,
            'partial' AS cache_state, false AS is_cold_start, []::VARCHAR[] AS flags FROM h"""
        )
        for stage in ("queue", "prefill", "first_decode", "later_decode"):
            self._con.execute(
                f"""INSERT INTO trace_stages BY NAME SELECT trace_id, '{stage}' AS stage,
                {stage}::DOUBLE AS critical_ms, ({stage} * 1e6)::BIGINT AS critical_ns FROM h"""
            )
        self._con.execute(
            f"""INSERT INTO spans BY NAME SELECT {same}, span_id, 'chat' AS name,
            'client' AS kind, start_ns AS received_ns, 'app' AS service, '' AS instance_id,
            '' AS scope, 'otel' AS dialect, 'unset' AS status, 'chat' AS operation,
            true AS is_model_call, false AS is_engine, false AS is_detached,
            (ttft_ms * 1e6)::BIGINT AS ttft_ns, []::VARCHAR[] AS flags,
            MAP {{'{keys.PROMPT_CHAIN}': hex(hash(i))}} AS attributes,
            '[]' AS events, '[]' AS links FROM h"""
        )


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    num = parser.parse_args().calls
    store = Store(num)
    setup = Setup("default", "", shipped(), objectives=from_tables(PROMISES))
    begun = time.perf_counter()
    inputs = read(store, setup, WEEK)
    loaded = time.perf_counter()
    document = build(inputs)
    built = time.perf_counter()
    html = page(document).encode()
    sizes = {"html": len(html), "md": len(text(document)), "json": len(written(document, "json"))}
    ended = time.perf_counter()
    print(f"{'calls, in the week':34}{num:12,}   {document['window']['num_traces']:,}")
    print(f"{'read, causes, promises':34}{loaded - begun:12.2f} s")
    print(f"{'document':34}{built - loaded:12.2f} s")
    print(f"{'HTML, Markdown, JSON':34}{ended - built:12.2f} s")
    print(f"{'all':34}{ended - begun:12.2f} s   need < {NEED_S:g}")
    print(f"{'HTML':34}{sizes['html']:12,} bytes   need < {NEED_BYTES:,}")
    print(f"{'Markdown, JSON':34}{sizes['md']:12,} {sizes['json']:,} bytes")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'peak memory, the store included':34}{peak:12,.0f} MiB")
    for cause in document["causes"]["causes"]:
        print(f"  {cause['where']}: {cause['stage']}, risk ratio {cause['risk_ratio']:.1f}")
    return int(ended - begun >= NEED_S or sizes["html"] >= NEED_BYTES)


if __name__ == "__main__":
    sys.exit(main())
