"""What a card tells beside its numbers: doubts about the comparison, and its surroundings."""

import hashlib
from typing import Any, Final

import numpy as np
import polars as pl

from longpole.errors import BadInput
from longpole.vocab import Stage
from longpole_analytics.scorecard.compared import Compared, Mean, Ratio
from longpole_analytics.scorecard.interval import finite, least
from longpole_analytics.scorecard.mix import Mix
from longpole_analytics.scorecard.rules import CardRules, Plan
from longpole_analytics.scorecard.sides import BASE, CAND, METRICS, Side
from longpole_analytics.scorecard.survival import Times, quantile

ENVIRONMENT: Final = (
    "service",
    "provider",
    "request_model",
    "response_model",
    "model",
    "service_tier",
    "route",
    "route_version",
    "prompt_version",
    "dialect",
)
"""Columns that say what ran."""
_MODELS: Final = ("request_model", "response_model", "model")
_MAX_VALUES: Final = 5
_COVERED: Final = 0.05
Note = tuple[str, str, bool]


def checked_target(plan: Plan) -> None:
    """Refuse a target that is no metric, and a quantile that is none.

    Raises:
        BadInput: it is so; says what there is.
    """
    if plan.target not in METRICS:
        raise BadInput(f"no metric '{plan.target}' to decide by; there are: {', '.join(METRICS)}")
    if plan.quantile is not None and not 0 < plan.quantile < 1:
        raise BadInput(f"quantile {plan.quantile:g}: a number between 0 and 1 is needed, as 0.95")


def is_shorter(found: Compared, rules: CardRules) -> bool:
    """Whether answers got shorter beyond chance, by more than the rules allow."""
    tokens = found.means.get("output_tokens")
    if tokens is None or tokens.value is None or tokens.interval is None:
        return False
    return tokens.value < 1 - rules.shorter and tokens.interval.ends(found.alpha)[1] < 0


def is_cut(found: Compared) -> bool:
    """Whether more answers are cut off, at a limit or by a filter, beyond chance."""
    cut = found.rates.get("cut_rate")
    return cut is not None and cut.difference.low > 0


def why_open(row: Ratio | None) -> str:
    """Why the target is undecided."""
    if row is None:
        return "the target is not recorded, or not on both sides"
    name = f"p{100 * row.quantile:g} of {row.name}"
    if row.reason == "too_few":
        return (
            f"{name}: too few samples ({row.n_base} and {row.n_cand} requests; "
            f"{least(row.quantile)} a side are needed, of 10 sessions or traces at least)"
        )
    if row.reason == "not_reached":
        return f"{name} is not reached on both sides: too much did not end"
    if row.reason == "zero":
        return f"{name} is 0 on a side: no ratio"
    return f"{name}: the interval reaches across the margin"


def notes(
    base: Side, cand: Side, found: Compared, mix: Mix, plan: Plan, rules: CardRules
) -> list[Note]:
    """Flags: name, sentence, and whether it keeps the verdict from ``better``."""
    made: list[Note] = []
    for side, name in ((base, BASE), (cand, CAND)):
        if not side.n:
            made.append(("no_traffic", f"the {name} has no requests", True))
    if not base.n or not cand.n:
        return made
    made += _of_mix(mix, rules)
    made += _of_models(base, cand)
    for side, name in ((base, BASE), (cand, CAND)):
        if side.num_missing:
            text = (
                f"{side.num_missing} prompts were never asked on the {name}: they count as failed"
            )
            made.append(("coverage", text, False))
        if bool((side.frame["is_failed"] | side.frame["is_cancelled"]).all()):
            made.append(("nothing_ended", f"no request of the {name} ended well", False))
    if plan.pair_by is not None and not _num_pairs(base, cand, plan.pair_by):
        made.append(("no_pairs", "no prompt was asked on both sides", True))
    if _num_shared(base, cand):
        text = f"{_num_shared(base, cand)} requests are on both sides"
        made.append(("overlap", text, False))
    known = found.rates.get("outcome_known")
    if known is not None and abs(known.difference.value) > _COVERED:
        text = "outcomes are known of different shares of the two sides' requests"
        made.append(("outcome_coverage", text, False))
    cancelled = found.rates.get("cancel_rate")
    if cancelled is not None and cancelled.difference.low > rules.error_rise:
        made.append(("more_cancelled", "more requests of the candidate were given up", False))
    if plan.is_closed_loop:
        text = "the load waited for answers (closed loop): no claim about tails"
        made.append(("closed_loop", text, (plan.quantile or 0.5) > 0.5))
    if plan.look is not None:
        made.append(("sequential", f"look {plan.look}: confidence {1 - plan.alpha:.4g}", False))
    return made


def _of_mix(mix: Mix, rules: CardRules) -> list[Note]:
    if not mix.is_standardised:
        return []
    what = " and ".join(mix.shifted)
    text = f"the mix of {what} differs: both sides are weighted to their common mix"
    made: list[Note] = [("mix_shift", text, False)]
    if min(mix.common) < rules.min_common:
        text = (
            f"only {100 * min(mix.common):.0f} % of a side's requests have a counterpart on the "
            "other: the two did different work"
        )
        made.append(("mix_disjoint", text, True))
    return made


def _of_models(base: Side, cand: Side) -> list[Note]:
    """Sides that ran several models, unless both ran the same ones in the same shares."""
    for column in _MODELS:
        shares = [_shares(side.text(column)) for side in (base, cand)]
        names = shares[0].keys() | shares[1].keys()
        if max(map(len, shares)) < 2:
            continue
        moved = sum(abs(shares[0].get(n, 0.0) - shares[1].get(n, 0.0)) for n in names) / 2
        if moved <= _COVERED:
            continue
        return [
            ("mixed_models", f"the {name} ran {len(own)} models ({column}): {_listed(own)}", False)
            for name, own in zip((BASE, CAND), shares, strict=True)
            if len(own) > 1
        ]
    return []


def _shares(values: pl.Series) -> dict[str, float]:
    known = values.drop_nulls()
    return {str(value): num / len(known) for value, num in _counts(known).iter_rows()}


def _counts(known: pl.Series) -> pl.DataFrame:
    """Values and how often each occurs, the most frequent first, of equals by name."""
    counts = known.value_counts(name="__num")
    return counts.sort(["__num", known.name], descending=[True, False])


def _listed(shares: dict[str, float]) -> str:
    return ", ".join(list(shares)[:_MAX_VALUES])


def _num_pairs(base: Side, cand: Side, name: str) -> int:
    """Prompts that both sides were really asked."""
    asked = [s.frame.filter(~pl.col("is_missing").fill_null(False)) for s in (base, cand)]
    ours, theirs = (frame.select(name).drop_nulls().unique() for frame in asked)
    return ours.join(theirs, on=name, how="semi").height


def _num_shared(base: Side, cand: Side) -> int:
    """Requests that are on both sides: the same id, start and time."""
    names = ["trace_id", "start_ns", "e2e_ms"]
    frames = [side.frame for side in (base, cand)]
    if any(name not in frame.columns for name in names for frame in frames):
        return 0
    ours, theirs = (frame.select(names).drop_nulls().unique() for frame in frames)
    return ours.join(theirs, on=names, how="inner").height if ours.schema == theirs.schema else 0


# --- sections -----------------------------------------------------------------------------------
def sections(base: Side, cand: Side, found: Compared, mix: Mix, plan: Plan) -> dict[str, Any]:
    """The rest of the document: rates, means, stages, the mix, what ran, the method."""
    return {
        "n": {"base": base.n, "cand": cand.n},
        "rates": [
            {
                "name": name,
                "base": rated.base.value,
                "cand": rated.cand.value,
                "difference": rated.difference.value,
                "ci95": [rated.difference.low, rated.difference.high],
                "n": [rated.base.n, rated.cand.n],
            }
            for name, rated in found.rates.items()
        ],
        "means": [_mean(mean, found.alpha) for mean in found.means.values()],
        "throughput": _throughput(base, cand),
        "cache": _cache(base, cand),
        "cold": _cold(base, cand),
        "stages": _stages(base, cand),
        "mix": {
            "is_standardised": mix.is_standardised,
            "shifted": list(mix.shifted),
            "moved_share": mix.moved,
            "common_share": list(mix.common),
            "reason": mix.reason,
        },
        "coverage": {"base_missing": base.num_missing, "cand_missing": cand.num_missing},
        "workload": [_workload(side) for side in (base, cand)],
        "environment": _environment(base, cand),
        "method": {
            "looks": "fixed" if plan.look is None else "sequential",
            "confidence": 1 - plan.alpha,
            "paired_by": plan.pair_by,
            "is_randomised": plan.is_randomised,
            "is_closed_loop": plan.is_closed_loop,
            "seed": plan.seed,
            "censored": "failures, timeouts and cancelled requests count as times not seen to end",
        },
    }


def _mean(mean: Mean, alpha: float) -> dict[str, Any]:
    ends = None
    if mean.interval is not None:
        low, high = mean.interval.ends(alpha)
        ends = [low, high] if mean.kind == "difference" else [np.exp(low), np.exp(min(high, 700))]
        ends = [finite(float(end)) for end in ends]
    return {
        "name": mean.name,
        "kind": mean.kind,
        "base": mean.base,
        "cand": mean.cand,
        "value": mean.value,
        "ci95": ends,
        "known_share": list(mean.known),
        "n": list(mean.n),
    }


def _throughput(base: Side, cand: Side) -> dict[str, Any]:
    """Requests and output tokens a second between the first start and the last."""
    found: dict[str, Any] = {"requests_per_s": [], "output_tokens_per_s": []}
    for side in (base, cand):
        starts, tokens = side.number("start_ns"), side.number("output_tokens")
        known = starts[~np.isnan(starts)]
        seconds = float(known.max() - known.min()) / 1e9 if len(known) > 1 else 0.0
        weight = side.weight[~np.isnan(starts)].sum()
        produced = float((side.weight * tokens)[~np.isnan(tokens)].sum())
        found["requests_per_s"].append(float(weight) / seconds if seconds else None)
        is_known = seconds and not np.isnan(tokens).all()
        found["output_tokens_per_s"].append(produced / seconds if is_known else None)
    return found


def _cache(base: Side, cand: Side) -> dict[str, Any]:
    """Share of the input that came from a cache, over requests that say so."""
    shares: list[float | None] = []
    for side in (base, cand):
        cached, every = side.number("cached_input_tokens"), side.number("input_tokens")
        known = ~np.isnan(cached) & ~np.isnan(every)
        total = float((side.weight * every)[known].sum())
        shares.append(float((side.weight * cached)[known].sum()) / total if total else None)
    return {"hit_rate_tokens": shares}


def _cold(base: Side, cand: Side) -> list[dict[str, Any]]:
    """Cold requests on a line of their own; they are in the other numbers too."""
    found = []
    for side, name in ((base, "base"), (cand, "cand")):
        if "is_cold" not in side.frame.columns or "e2e_ms" not in side.times:
            continue
        cold = side.frame["is_cold"].fill_null(False).to_numpy().astype(np.bool_)
        if cold.any():
            times = Times(*(array[cold] for array in side.times["e2e_ms"]))
            found.append({"side": name, "n": int(cold.sum()), "e2e_p50_ms": quantile(times, 0.5)})
    return found


def _stages(base: Side, cand: Side) -> list[dict[str, Any]]:
    """Mean time of each stage on the critical path, over requests that know it."""
    rows = []
    for stage in Stage:
        means = []
        for side in (base, cand):
            values = side.number(f"{stage.value}_ms")
            known = ~np.isnan(values) & (side.weight > 0)
            weighed = np.average(values[known], weights=side.weight[known]) if known.any() else None
            means.append(None if weighed is None else float(weighed))
        if any(means):
            ours, theirs = means
            change = None if ours is None or theirs is None else theirs - ours
            rows.append(
                {"stage": stage.value, "base_ms": ours, "cand_ms": theirs, "change_ms": change}
            )
    return rows


def _workload(side: Side) -> str | None:
    """A hash of what was asked, in any order: equal workloads have equal ones."""
    names = [n for n in ("route", "prompt_id", "input_tokens") if n in side.frame.columns]
    if not names or not side.n:
        return None
    asked = side.frame.filter(~pl.col("is_missing").fill_null(False)).select(names)
    return hashlib.sha256(asked.sort(names).write_csv().encode()).hexdigest()[:16]


def _environment(base: Side, cand: Side) -> list[dict[str, Any]]:
    rows = []
    for name in ENVIRONMENT:
        if name == "model" and "request_model" in base.frame.columns:
            continue
        values = []
        for side in (base, cand):
            counts = _counts(side.text(name).drop_nulls())
            values.append(counts[name].to_list()[:_MAX_VALUES])
        if any(values):
            rows.append({"name": name, "base": values[0], "cand": values[1]})
    return rows
