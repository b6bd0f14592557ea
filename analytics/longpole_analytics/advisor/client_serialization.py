"""Client-side serialization: calls wait for each other, or streams for the code that reads them.

A lock, a single worker, or a blocking client in an event loop shows as calls of different
requests that never overlap, each beginning when another one has just ended, after a wait in which
its own request did nothing. Work between two chunks shows as time the application held a stream.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import DECODE, OWN, shorter
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import (
    HIGH,
    MEDIUM,
    Candidate,
    Fact,
    Rule,
    ask,
    condition,
    groups,
    median,
    numbers,
    of,
    text,
)
from longpole_analytics.weighted import part as part_of


def _find(pop: Population, rules: AdvisorRules) -> Sequence[Candidate]:
    return [*_queued(pop, rules), *_held(pop, rules)]


def waits(pop: Population) -> pl.DataFrame:
    """The calls with ``wait_ns``, their request's idle time before them, and who was before.

    ``since_ns``: since the last call of another request in the same process ended; ``beside``:
    calls that ran in the process when this one began.
    """
    is_below = pl.col("parent").is_not_null() & pl.col("end_ns").is_not_null()
    nodes = pop.spans.filter(pl.col("is_node") & pl.col("is_sound") & is_below)
    nodes = nodes.select("row", "parent", "start_ns", "end_ns").sort("parent", "start_ns", "row")
    starts = pop.spans.select(parent="row", above_ns="start_ns")
    earlier = pl.col("end_ns").cum_max().shift(1).over("parent")
    ready = (
        nodes.join(starts, on="parent", how="left", maintain_order="left")
        .with_columns(ready_ns=pl.max_horizontal("above_ns", earlier))
        .select("row", "ready_ns")
    )
    columns = ["row", "trace", "parent", "route", "service", "instance_id", "start_ns", "end_ns"]
    columns += ["weight"]
    calls = pop.calls.select(*columns, "length_ns")
    calls = calls.join(ready, on="row", how="left").sort("start_ns", "row")
    ends = calls.select("instance_id", at="end_ns", ended="end_ns", by="trace").sort("at")
    calls = calls.join_asof(
        ends, left_on="start_ns", right_on="at", by="instance_id", strategy="backward",
        check_sortedness=False,
    )  # fmt: skip
    begun = pl.int_range(pl.len()).over("instance_id", order_by="start_ns")
    calls = calls.with_columns(begun=begun)
    finished = ends.with_columns(
        num=pl.int_range(1, pl.len() + 1).over("instance_id", order_by="at")
    ).select("instance_id", "at", "num")
    calls = calls.sort("start_ns").join_asof(
        finished.sort("at"), left_on="start_ns", right_on="at", by="instance_id",
        strategy="backward", check_sortedness=False,
    )  # fmt: skip
    return calls.with_columns(
        wait_ns=pl.col("start_ns") - pl.col("ready_ns"),
        since_ns=pl.when(pl.col("by") != pl.col("trace")).then(
            pl.col("start_ns") - pl.col("ended")
        ),
        beside=pl.col("begun") - pl.col("num").fill_null(0),
    )


def _queued(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    found = []
    near_ns = rules.serial_gap_ms * 1e6
    told = waits(pop).filter(pl.col("instance_id").is_not_null())
    for where, calls in groups(told, ("route", "service"), rules.min_calls):
        waited = calls.filter(
            (pl.col("wait_ns") >= rules.serial_wait_ms * 1e6)
            & (pl.col("since_ns") <= near_ns)
            & (pl.col("beside") == 0)
            & pl.col("parent").is_not_null()
        )
        part = part_of(waited, calls)
        alone = float((calls["beside"] == 0).mean() or 0.0)  # type: ignore[arg-type]
        if (part.value or 0.0) < rules.serial_share or alone < 0.95:
            continue
        wait = numbers(waited, "wait_ns")
        found.append(
            Candidate(
                where=where,
                title=f"{waited.height} of {calls.height} model calls begin just when another "
                "request's call ends, and two never run at once: they wait for one another",
                change=f"in {text(where['service'])}, look for a lock, a pool of one, or a "
                "blocking client in an event loop around the model call; use the client's async "
                "form and cap concurrency at what the provider takes, not at one",
                verify=ask(
                    "count(*) AS calls, count(*) FILTER (start_ns < before) AS that_overlap",
                    "(SELECT route, start_ns, max(end_ns) OVER (PARTITION BY service ORDER BY "
                    "start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before "
                    "FROM calls)",
                    condition(where),
                ),
                evidence=(
                    of("calls_that_waited", part),
                    Fact("wait_p50_ms", median(wait, waited) / 1e6, waited.height),
                    Fact("calls_alone_share", alone, calls.height),
                ),
                touched=waited["trace"].unique().to_numpy(),
                replayed=shorter(waited["parent"], OWN, wait),
                confidence=MEDIUM,
            )
        )
    return found


def _held(pop: Population, rules: AdvisorRules) -> list[Candidate]:
    """Streams that wait for the code between two reads."""
    found = []
    told = pop.calls.filter(
        pl.col("consumer_hold_ns").is_not_null() & (pl.col("last_content_ns") > pl.col("ttft_ns"))
    ).with_columns(
        part=pl.col("consumer_hold_ns") / (pl.col("last_content_ns") - pl.col("ttft_ns"))
    )
    for where, calls in groups(told, ("route", "name", "model"), rules.min_calls):
        part, hold = median(numbers(calls, "part"), calls), numbers(calls, "consumer_hold_ns")
        if part < rules.hold_share or median(hold, calls) < rules.serial_wait_ms * 1e6:
            continue
        found.append(
            Candidate(
                where=where,
                title=f"the application holds the stream {100 * part:.0f} % of the time between "
                "its first and its last chunk",
                change="move what is done for each chunk (parsing, storing, rendering) off the "
                "loop that reads the stream: put chunks in a queue, and parse JSON once at the end",
                verify=ask(
                    "quantile_disc(consumer_hold_ns, 0.5) / 1e6 AS hold_p50_ms",
                    "spans",
                    "is_model_call",
                    condition(where),
                ),
                evidence=(
                    Fact("hold_share_p50", part, calls.height),
                    Fact("hold_p50_ms", median(hold, calls) / 1e6, calls.height),
                ),
                touched=calls["trace"].unique().to_numpy(),
                replayed=shorter(calls["row"], DECODE, np.nan_to_num(hold)),
                confidence=HIGH if part > 0.5 else MEDIUM,
            )
        )
    return found


ADVICE: Final = Rule(130, "client-side serialization", _find)
