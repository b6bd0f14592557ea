"""The sentences on top of Matrix, Reports, Settings and health."""

from dataclasses import replace
from typing import Any

from longpole_dashboard.model.health import RATIOS, HealthView, Lack, Quality
from longpole_dashboard.model.matrix import view as matrix_view
from longpole_dashboard.model.reports import Report, Reports
from longpole_dashboard.model.verdict_lines.base import Line
from longpole_dashboard.model.verdict_lines.health import Held, of_health
from longpole_dashboard.model.verdict_lines.matrix import of_matrix
from longpole_dashboard.model.verdict_lines.reports import of_reports

from .sentences import HOSTILE


def cell(cache: str, took: float, rate: float, size: int = 64, **result: Any) -> dict[str, Any]:
    work = {"input_tokens": size, "output_tokens": 16, "concurrency": 4, "language": "en"}
    told = {"ttft_ms": {"p50": took, "mean": took}, "output_tokens_per_s": rate}
    return {
        "key": f"{cache} {size} {took}",
        "cell": {**work, "cache": cache, "start": "warm", "settings": {"policy": "fcfs"}},
        "result": {**told, "num_completed": 24, "failures": {}, **result},
    }


def matrix_line(*cells: dict[str, Any], latency: str = "ttft_ms") -> Line:
    return of_matrix(matrix_view({"model": "m", "requests": 24, "cells": list(cells)}), latency)


def test_the_cells_that_none_beats_are_named() -> None:
    cells = (cell("hit", 10.0, 50.0), cell("off", 30.0, 40.0), cell("miss", 40.0, 60.0))
    said = matrix_line(*cells, cell("hit", 99.0, 9.0, 256))
    assert said.line == (
        "64 tokens in, 16 out, en: least TTFT by 4 at once, cache hit, policy fcfs (TTFT 10.0 ms, "
        "50.0 tokens/s, n 24); most tokens by 4 at once, cache miss, policy fcfs (TTFT 40.0 ms, "
        "60.0 tokens/s, n 24)."
    )
    assert said.more == ("1 other work below.",)
    best = matrix_line(cell("hit", 10.0, 70.0, failures={"timeout": 2}), *cells[1:]).line
    assert "no cell beats 4 at once, cache hit, policy fcfs (TTFT 10.0 ms, 70.0 tokens/s" in best
    assert "n 24, 2 failed)" in best
    assert "one cell, nothing to compare" in matrix_line(cells[0]).line
    assert matrix_line(cells[0], latency="tpot_ms").line.startswith("No verdict: no cell tells")


def report(num: int | None, *lines: str) -> Reports:
    older = Report("2026-W36", "", "", "", 9, "", ("older",))
    return Reports((Report("2026-W37", "", "", "", num, "", lines), older))


def test_the_newest_report_says_its_cause_or_else_what_it_begins_with() -> None:
    lines = ("Promises: 1 met.", "Biggest cause: queue with v2.", "Do first: add replicas.")
    assert of_reports(report(1_200, *lines)) == Line(
        "2026-W37 (1,200 requests): Biggest cause: queue with v2.", ("Do first: add replicas.",)
    )
    quiet = report(40, "Promises: 1 met.", "Biggest cause: none found: too few.")
    assert of_reports(quiet) == Line("2026-W37 (40 requests): Promises: 1 met.")
    assert of_reports(report(0, "x")).line == ("2026-W37: no data: no request began in that time.")
    assert of_reports(report(None)).line == "2026-W37: no data: it says nothing."
    assert of_reports(Reports((), "No report was made yet.")) == Line("No report was made yet.")


KNOWN = HealthView("", (("spans received", 5), ("spans stored", 5)))
LACKS = (
    Lack("route", "2 of 9 root spans lack it", "send it", is_common=False),
    Lack("outcome", "9 of 9 root spans lack it", "accept()", is_common=True),
)


def test_health_says_whether_all_is_stored_and_what_is_missing() -> None:
    said = of_health(KNOWN, Held(LACKS, (), has_spans=True))
    assert said == Line(
        "Nothing of 5 spans that came since the collector started was refused, dropped or cut; 2 "
        "facts are missing from some of the last spans, 1 of them from most: outcome.",
        ("Next, outcome: accept() (9 of 9 root spans lack it).",),
    )
    all_common = of_health(KNOWN, Held(LACKS[1:], (), has_spans=True)).line
    assert "1 fact is missing from most of the last spans: outcome." in all_common
    lost = replace(KNOWN, lost=(("spans rejected", "", 1), ("events dropped", "too many", 7)))
    worse = of_health(lost, Held((), (), has_spans=True))
    assert worse.tone == "worse"
    assert worse.line == (
        "Not all that came is stored as it was sent: spans rejected 1, and 1 more line below; the "
        "last spans lack nothing."
    )
    assert of_health(replace(KNOWN, lost=lost.lost[1:]), Held()).tone == "grey"
    broken = of_health(replace(KNOWN, broken=(("spans.duckdb", "why"),)), Held())
    assert (broken.line.split(":")[0], broken.tone) == (
        "1 file of the store cannot be read",
        "worse",
    )
    away = of_health(replace(KNOWN, problem="no answer"), Held(LACKS))
    assert (away.line.split(":")[0], away.tone) == ("The store cannot be used", "worse")


def test_health_without_a_collector_or_spans_says_what_is_known() -> None:
    recorded = HealthView("No collector is read from: its counters are its own.")
    ledger = (Quality("shop", "longpole", 73, (0.0,) * 4 + (1.0, None, 0.0), ()),)
    assert [title for _, title in RATIOS][4] == "no price"
    assert of_health(recorded, Held((), ledger, has_spans=True)).line == (
        "The last spans lack nothing; the ledger has 'no price' 100.0 % for shop (73 calls)."
    )
    assert of_health(recorded, Held(())).line == (
        "No verdict: no collector is read from: its counters are its own."
    )
    assert of_health(HealthView(""), Held(())).line == ("No span came since the collector started.")


def test_a_hostile_report_is_text_in_one_line() -> None:
    said = of_reports(report(3, f"Biggest cause: {HOSTILE}", f"Do first: {HOSTILE}"))
    assert all(line.isprintable() and len(line) < 400 for line in (said.line, *said.more))
