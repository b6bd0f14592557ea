"""Where slow time went: the stages of slow and of other requests, by route, now and before."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.report.base import Bar, Bars, Inputs, Part, Piece, Section, Text
from longpole_analytics.report.commands_text import query_command
from longpole_analytics.report.sections._words import count
from longpole_analytics.top import Slow
from longpole_analytics.weighted import is_sampled, sums_of

MAX_ROUTES: Final = 6
_STAGES: Final = tuple(f"{stage.value}_ms" for stage in Stage)


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    now = split(inputs.requests, inputs.metric, inputs.slow)
    if not now:
        return None
    before = {} if inputs.before is None else split(inputs.before, inputs.metric, inputs.slow)
    size: dict[str | None, int] = {}
    for (route, _slow), row in now.items():
        size[route] = size.get(route, 0) + row["n"]
    routes = sorted(size, key=lambda route: (-size[route], route or ""))
    return {
        "routes": [
            {
                "route": route,
                "n": size[route],
                "bars": [
                    {"requests": "slow" if is_slow else "others", "when": when, **found}
                    for is_slow in (True, False)
                    for when, side in (("now", now), ("before", before))
                    if (found := side.get((route, is_slow))) is not None
                ],
            }
            for route in routes[:MAX_ROUTES]
        ],
        "num_routes_left_out": max(len(routes) - MAX_ROUTES, 0),
    }


def split(
    requests: pl.DataFrame, metric: str, slow: Slow
) -> dict[tuple[str | None, bool], dict[str, Any]]:
    """Mean milliseconds of each stage on the critical path, by route and whether slow.

    Slow is above the objective, or above the quantile of all requests of the route, its element of
    nearest rank. Requests whose stages are not known do not count. Quantile and means are weighed;
    ``n`` counts the requests looked at.
    """
    if "route" not in requests.columns:
        requests = requests.with_columns(pl.lit(None, pl.String).alias("route"))
    known = requests.filter(
        pl.col(metric).is_finite(), pl.any_horizontal(pl.col(_STAGES).is_not_null())
    )
    sums = sums_of(known)
    if slow.objective_ms is None:
        # 0.07 * 100 is 7.000000000000001: a rank must not depend on that
        place = (pl.len() * slow.quantile).round(9).ceil().clip(1, pl.len()).cast(pl.Int64) - 1
        limit = pl.col(metric).sort().get(place)
        if sums.weight is not None:  # rounding of sums of weights must not move a rank either
            upto = sums.weight.sort_by(metric).cum_sum()
            is_reached = upto >= slow.quantile * sums.weight.sum() * (1 - 1e-12)
            limit = pl.col(metric).sort().filter(is_reached).first()
        limits = known.group_by("route").agg(limit=limit)
        marked = known.join(limits, on="route", nulls_equal=True, maintain_order="left")
    else:
        marked = known.with_columns(limit=pl.lit(slow.objective_ms))
    found = marked.group_by("route", is_slow=pl.col(metric) > pl.col("limit")).agg(
        pl.len().alias("n"),
        sums.mean(pl.col(metric)).alias("mean_ms"),
        *(sums.mean(pl.col(name)).alias(name) for name in _STAGES),
    )
    return {
        (row["route"], row["is_slow"]): {
            "n": row["n"],
            "mean_ms": row["mean_ms"],
            "stages": [
                {"stage": name.removesuffix("_ms"), "mean_ms": row[name]}
                for name in _STAGES
                if row[name]
            ],
        }
        for row in found.iter_rows(named=True)
    }


def _show(part: Part) -> list[Piece]:
    pieces: list[Piece] = [
        Bars(
            f"{route['route'] or '(no route)'}: {count(route['n'])} requests",
            tuple(
                Bar(
                    f"{bar['requests']}, {bar['when']} ({count(bar['n'])})",
                    tuple((each["stage"], each["mean_ms"]) for each in bar["stages"]),
                )
                for bar in route["bars"]
            ),
        )
        for route in part["routes"]
    ]
    if part["num_routes_left_out"]:
        pieces.append(Text(f"{part['num_routes_left_out']} smaller routes are left out."))
    return [Text("Mean milliseconds of a request on the critical path, by stage."), *pieces]


def _command(inputs: Inputs) -> str:
    """One statement that gives the means of the window; none where requests were sampled."""
    if inputs.metric != "e2e_ms" or inputs.where or is_sampled(inputs.requests):
        return ""
    since, until = inputs.window.since_ns, inputs.window.until_ns
    limit = f"quantile_disc(wall_ms, {inputs.slow.quantile:g}) OVER (PARTITION BY route)"
    if inputs.slow.objective_ms is not None:
        limit = f"{inputs.slow.objective_ms:g}"
    sql = f"""
        WITH t AS (SELECT trace_id, route, wall_ms > {limit} AS is_slow FROM traces
        WHERE start_ns >= {since} AND start_ns < {until} AND wall_ms IS NOT NULL
        AND NOT coalesce(list_contains(flags, 'incomplete_trace'), false)
        AND trace_id IN (SELECT trace_id FROM trace_stages)),
        n AS (SELECT route, is_slow, count(*) AS n FROM t GROUP BY ALL)
        SELECT t.route, t.is_slow, stage, sum(critical_ms) / any_value(n) AS mean_ms
        FROM t JOIN trace_stages USING (trace_id)
        JOIN n ON t.route IS NOT DISTINCT FROM n.route AND t.is_slow = n.is_slow
        GROUP BY ALL ORDER BY ALL
    """  # noqa: S608 - numbers of ours, and a person runs it
    return query_command(inputs, sql)


SECTION = Section(4, "Where slow time went", _build, _show, _command)
