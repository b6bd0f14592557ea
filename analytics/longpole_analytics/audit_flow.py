"""The audit's lines on how requests flow: quantiles, concurrency, retries, guesses, taxes."""

import json
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl

from longpole.vocab import Stage
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import Fact, groups, lowest, median, numbers, of
from longpole_analytics.advisor.cold_paths import tempered
from longpole_analytics.advisor.speculation import guesses
from longpole_analytics.audit import FAIL, PASS, UNSEEN, AuditRules, Line, ids
from longpole_analytics.stats import rank
from longpole_analytics.weighted import is_shown, quantile, weights_of
from longpole_analytics.weighted import part as part_of

QUANTILES: Final = (0.5, 0.95, 0.99)
MAX_SLICES: Final = 20
_REFUSED: Final = "429"


def measured(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether quantiles can be had by slice: traces say their route, and are enough."""
    check, question = "measured", "Are p50, p95 and p99 measured by slice?"
    sound = pop.traces.filter("is_sound")
    named = part_of(sound.drop_nulls("route"), sound)
    by = [(rows["route"][0], rows) for rows in sound.partition_by("route")]
    by.sort(key=lambda each: (-each[1].height, each[0] or ""))
    rows = tuple(_slice(*each) for each in by[:MAX_SLICES])
    carried = sum(row["n"] for row in rows if row["p95_ms"] is not None)
    facts = (of("traces_with_route_share", named), Fact("traces_in_slices_with_p95", carried,
                                                        sound.height))  # fmt: skip
    if sound.height < rules.min_calls:
        return Line(check, question, UNSEEN, "too few traces", "send more traces", facts, (), rows)
    if (named.value or 0.0) < rules.named_share:
        lost = sound.filter(pl.col("route").is_null())["trace"]
        return Line(check, question, FAIL, f"{named.n - named.k} of {named.n} traces do not say "
                    "their route", "name it: longpole.workflow(name, route=..., "
                    "route_version=...)", facts, ids(pop.traces, lost), rows)  # fmt: skip
    if not carried:
        return Line(check, question, UNSEEN, "no slice has enough traces for a p95 (200)",
                    "look at a longer time", facts, (), rows)  # fmt: skip
    return Line(check, question, PASS, f"{len(rows)} slices; those with a p95 hold {carried} of "
                f"{sound.height} traces", "nothing to do: `longpole slices` shows them", facts,
                ids(pop.traces, sound["trace"]), rows)  # fmt: skip


def _slice(route: str | None, traces: pl.DataFrame) -> dict[str, Any]:
    ordered = traces.sort("wall_ms")
    walls, weights = numbers(ordered, "wall_ms"), weights_of(ordered)
    row: dict[str, Any] = {"route": route, "n": ordered.height}
    for q in QUANTILES:
        found = quantile(walls, weights, q) if is_shown(weights, q) else None
        row[f"p{100 * q:g}_ms"] = None if found is None else found.value
    return row


def concurrency(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether something caps the calls that run at once."""
    check, question = "concurrency_capped", "Is concurrency to each model capped?"
    refused = pop.calls.filter(
        pl.col("attempt_status").str.contains(_REFUSED, literal=True).fill_null(False)
        | (pl.col("status_code") == _REFUSED).fill_null(False)
        | pl.col("error_type").str.contains("(?i)429|rate.?limit").fill_null(False)
    )
    part = part_of(refused, pop.calls)
    limiters = pop.steps.filter(pl.col("stage") == Stage.ADMISSION.value)
    running = in_flight(pop.calls)
    top = int(running["in_flight"].max() or 0)  # type: ignore[arg-type]
    p95 = float(running["in_flight"].sort()[rank(running.height, 0.95) - 1]) if top else 0.0
    at_top = float((running["in_flight"] == top).mean() or 0.0)  # type: ignore[arg-type]
    facts = (of("refused_share", part), Fact("in_flight_max", top, running.height),
             Fact("in_flight_p95", p95, running.height),
             Fact("admission_steps", limiters.height, pop.steps.height))  # fmt: skip
    if pop.calls.height < rules.min_calls:
        return Line(check, question, UNSEEN, "too few calls", "send more traces", facts)
    if (part.value or 0.0) > rules.max_refused_share:
        return Line(check, question, FAIL, f"{part.k} of {part.n} calls were refused for their "
                    "rate (429)", "put a semaphore around the calls, below the provider's limit, "
                    "in longpole.admission", facts, ids(pop.traces, refused["trace"]))  # fmt: skip
    if top >= rules.min_burst and top > rules.burst_ratio * max(p95, 1.0):
        worst = running.filter(pl.col("in_flight") == top)["trace"]
        return Line(check, question, FAIL, f"up to {top} calls ran at once, p95 {p95:.0f}: nothing "
                    "caps a burst", "put a semaphore around the calls in longpole.admission",
                    facts, ids(pop.traces, worst))  # fmt: skip
    if limiters.height >= rules.min_calls:
        return Line(check, question, PASS, "calls pass an admission step", "nothing to do", facts,
                    ids(pop.traces, limiters["trace"]))  # fmt: skip
    below = float((running["in_flight"] == top - 1).mean() or 0.0)  # type: ignore[arg-type]
    # at a cap calls pile up; without one, ever fewer find ever more beside them
    is_piled = at_top * running.height >= rules.min_waits and at_top >= 0.7 * below
    if top > 1 and at_top >= rules.cap_share and is_piled:
        worst = running.filter(pl.col("in_flight") == top)["trace"]
        return Line(check, question, PASS, f"never more than {top} calls ran at once, and "
                    f"{100 * at_top:.0f} % began at that many", "nothing to do", facts,
                    ids(pop.traces, worst))  # fmt: skip
    return Line(check, question, UNSEEN, "no call ran into a cap, and none was refused",
                "wrap the limiter in longpole.admission so that it shows", facts)  # fmt: skip


def in_flight(calls: pl.DataFrame) -> pl.DataFrame:
    """Each call with ``in_flight``, those of its service and model that ran at its start."""
    by = ["service", "model"]
    begins = calls.select(*by, "trace", at="start_ns", step=pl.lit(1, pl.Int64))
    ends = calls.select(*by, pl.lit(None, pl.Int64).alias("trace"), at="end_ns",
                        step=pl.lit(-1, pl.Int64))  # fmt: skip
    return (
        pl.concat([ends, begins])
        .sort("at", "step", maintain_order=True)
        .with_columns(in_flight=pl.col("step").cum_sum().over(by))
        .drop_nulls("trace")
    )


def backoff(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether attempts wait, longer each time, and not all the same time."""
    check, question = "backoff_with_jitter", "Do retries back off, with jitter?"
    waits = pl.concat([_call_waits(pop), _tool_waits(pop)])
    waits = waits.with_columns(weight=pop.traces["weight"].gather(waits["trace"]))
    firsts = waits.filter(pl.col("place") == 0)
    values = numbers(firsts, "wait_ms")
    num = len(values)
    later = waits.filter(pl.col("growth").is_not_null())
    facts: tuple[Fact, ...] = (Fact("first_wait_p50_ms", median(values, firsts), num),)
    if num < rules.min_waits:
        return Line(check, question, UNSEEN, f"{num} waits between attempts are told: too few",
                    "nothing failed often enough to tell; wrap the client to see attempts",
                    facts)  # fmt: skip
    low, middle, high = (lowest(firsts, "wait_ms", q) for q in (0.1, 0.5, 0.9))
    spread = float((high - low) / middle) if middle > 0 else 0.0
    growth = median(numbers(later, "growth"), later) if later.height else None
    facts = (*facts, Fact("spread_of_waits", spread, num),
             Fact("growth_of_waits_p50", growth, later.height))  # fmt: skip
    shown = ids(pop.traces, firsts["trace"])
    how = "wait min(cap, base * 2 ** attempt) times a random number from 0 to 1 before each attempt"
    if middle < rules.min_wait_ms:
        return Line(check, question, FAIL, f"attempts follow each other after {middle:.0f} ms",
                    how, facts, shown)  # fmt: skip
    if spread < rules.jitter_spread:
        return Line(check, question, FAIL, f"all wait the same {middle:.0f} ms before the second "
                    "attempt: no jitter", how, facts, shown)  # fmt: skip
    if growth is not None and later.height >= rules.min_waits and growth < rules.growth:
        return Line(check, question, FAIL, "later waits are no longer than earlier ones", how,
                    facts, shown)  # fmt: skip
    return Line(check, question, PASS, f"waits differ and are {middle:.0f} ms in the median",
                "nothing to do", facts, shown)  # fmt: skip


_WAITS: Final = {"trace": pl.Int64, "place": pl.Int64, "wait_ms": pl.Float64, "growth": pl.Float64}
MAX_RETRIED: Final = 20_000
"""Calls with several attempts whose waits are read."""


def _call_waits(pop: Population) -> pl.DataFrame:
    """Waits of calls: where one is told it is that; else from start to start of attempts."""
    retried = pop.calls.filter(
        pl.col("attempt_offsets").is_not_null() | (pl.col("retry_wait") > 0)
    ).head(MAX_RETRIED)
    rows: list[tuple[int, int, float, float | None]] = []
    for trace, text, told in retried.select("trace", "attempt_offsets", "retry_wait").iter_rows():
        gaps = _gaps_ms(text)
        if len(gaps) <= 1 and told is not None:
            rows.append((trace, 0, told * 1e3, None))
            continue
        for place, gap in enumerate(gaps):
            before = gaps[place - 1] if place else 0.0
            rows.append((trace, place, gap, gap / before if before > 0 else None))
    return pl.DataFrame(rows, _WAITS, orient="row")


def _gaps_ms(text: str | None) -> list[float]:
    try:
        found = json.loads(text or "[]")
        starts = [float(each) / 1e3 for each in found]
    except (ValueError, TypeError):
        return []
    return [max(after - before, 0.0) for before, after in pairwise(starts)]


def _tool_waits(pop: Population) -> pl.DataFrame:
    again = pop.steps.filter(pl.col("tool_retry_of").is_not_null())
    before = pop.spans.select("trace", tool_retry_of="id", ended="end_ns")
    found = again.join(before, on=["trace", "tool_retry_of"], how="inner").unique("row")
    return found.select(
        "trace",
        place=pl.lit(0, pl.Int64),
        wait_ms=(pl.col("start_ns") - pl.col("ended")).clip(0) / 1e6,
        growth=pl.lit(None, pl.Float64),
    )


def speculation(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether guesses come true often enough."""
    least = rules.least_hits
    check, question = "speculation", f"Is the hit rate of speculation over {100 * least:.0f} %?"
    told = guesses(pop)
    hits = part_of(told.filter("is_hit"), told)
    facts = (of("hit_rate", hits),)
    if told.height < rules.min_calls:
        return Line(check, question, UNSEEN, f"{told.height} guesses have a verdict: too few",
                    "mark work ahead with longpole.speculation", facts)  # fmt: skip
    for where, rows in groups(told, ("route", "name"), rules.min_calls):
        own = part_of(rows.filter("is_hit"), rows)
        if own.high is not None and own.high < least:
            lost = rows.filter(~pl.col("is_hit"))["trace"]
            return Line(check, question, FAIL, f"{where['name']}: {own.k} of {own.n} guesses were "
                        "used", "turn it off, or guess only where hits are likely",
                        (*facts, of("worst_hit_rate", own)), ids(pop.traces, lost))  # fmt: skip
    if hits.low is not None and hits.low > least:
        good = told.filter("is_hit")["trace"]
        return Line(check, question, PASS, f"{hits.k} of {hits.n} guesses were used",
                    "nothing to do", facts, ids(pop.traces, good))  # fmt: skip
    return Line(check, question, UNSEEN, f"{hits.k} of {hits.n} used: too few to be sure either "
                "way", "look at a longer time", facts)  # fmt: skip


def taxes(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether the cost of the edge and of cold starts is measured."""
    check, question = "edge_and_cold_tax", "Are the edge's and cold starts' tax measured?"
    calls = pop.calls
    edge = (
        pl.col("connection_new").is_not_null()
        | pl.col("connection_time").is_not_null()
        | pl.col("server_processing").is_not_null()
        | pl.col("prefill_ns").is_not_null()
    )
    told_edge = calls.filter(edge)
    told_cold = calls.drop_nulls("is_cold_start")
    parts = [part_of(rows, calls) for rows in (told_edge, told_cold)]
    timed = tempered(pop).filter(pl.col("first_ns") > 0)
    is_cold = pl.col("is_cold").fill_null(False)
    cold, warm = timed.filter(is_cold), timed.filter(~is_cold)
    extra = median(numbers(cold, "first_ns"), cold) - median(numbers(warm, "first_ns"), warm)
    took = numbers(calls, "connection_time") * 1e3
    facts = (of("edge_told_share", parts[0]), of("cold_told_share", parts[1]),
             Fact("connection_p50_ms", median(took, calls), int(np.isfinite(took).sum())),
             Fact("cold_extra_p50_ms", extra / 1e6, cold.height))  # fmt: skip
    if calls.height < rules.min_calls:
        return Line(check, question, UNSEEN, "too few calls", "send more traces", facts)
    told = [(part.value or 0.0) >= rules.told_share for part in parts]
    if all(told):
        return Line(check, question, PASS, "connections or the server's own time, and cold starts, "
                    "are told", "nothing to do", facts,
                    ids(pop.traces, told_cold["trace"]))  # fmt: skip
    how = ("wrap the client (longpole.wrap) so that connections are told; trace the engine, or set "
           "longpole.cold_start on calls")  # fmt: skip
    if not any(told):
        return Line(check, question, UNSEEN, "neither connections nor cold starts are told", how,
                    facts)  # fmt: skip
    missing = "cold starts are" if told[0] else "the edge (connections, the server's own time) is"
    return Line(check, question, FAIL, f"{missing} not measured", how, facts,
                ids(pop.traces, calls["trace"]))  # fmt: skip
