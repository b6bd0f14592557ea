"""What a run shows: asked against achieved, latency from the time a request was due, failures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from longpole_engine.load.arrivals import squared_cv
from longpole_engine.load.run import Run, Sent

SCHEMA: Final = "longpole.load/1"
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_MIN_BEYOND: Final = 10
"""A quantile needs so many values beyond it, else it is null and the maximum must do."""
_BEHIND_P99_MS: Final = 50.0
_BEHIND_SHARE: Final = 0.98
_MS: Final = 1e6


def summary(run: Run, arrivals: str) -> dict[str, Any]:
    """The document ``longpole load --json`` prints (schema ``longpole.load/1``).

    ``latency`` counts from the time a request was due; ``service`` from the time it was sent. Cold
    requests, which had to open a connection or fell into the warm-up, stand apart.
    """
    is_open = not arrivals.startswith("closed:")
    seconds = (run.ended_ns - run.begun_ns) / 1e9
    warm = [each for each in run.sent if not _is_cold(each)]
    cold = [each for each in run.sent if _is_cold(each)]
    due_s = sorted((each.due_ns - run.begun_ns) / 1e9 for each in run.sent)
    num_sent = len(run.sent) + run.num_given_up
    lag_ms = [each.lag_ns / _MS for each in run.sent]
    whole = [each for each in run.sent if each.answer.is_whole]
    tokens = [each.answer.call.usage.output_tokens for each in whole]
    known = [number for number in tokens if number is not None]
    found = {
        "schema": SCHEMA,
        "arrivals": arrivals,
        "loop": "open" if is_open else "closed",
        "seed": run.plan.seed,
        "is_partial": run.is_stopped,
        "duration_s": seconds,
        "num_due": run.num_due,
        "num_sent": num_sent,
        "num_not_sent": run.num_not_sent,
        "num_too_late": run.num_too_late,
        "num_given_up": run.num_given_up,
        "num_completed": len(whole),
        "failures": dict(Counter(failure(each) for each in run.sent if each.answer.failure)),
        "failure_texts": _texts(run.sent),
        "behaviours": dict(Counter(str(each.behaviour) for each in run.sent)),
        "asked_per_s": _rate_per_s(run.num_due, run.due_ns) if is_open else None,
        "sent_per_s": _rate_per_s(num_sent, run.sent_ns),
        "completed_per_s": len(whole) / seconds if seconds else None,
        "arrivals_cv2": squared_cv(due_s) if is_open else None,
        "max_in_flight": run.max_in_flight,
        "input_tokens": _known_sum(each.answer.call.usage.input_tokens for each in whole),
        "cached_input_tokens": _known_sum(
            each.answer.call.usage.cached_input_tokens for each in whole
        ),
        "output_tokens": sum(known) if known else None,
        "output_tokens_per_s": sum(known) / seconds if known and seconds else None,
        "send_lag_ms": quantiles(lag_ms),
        "warm": times(warm),
        "cold": times(cold),
        "generator_cpu_s": run.cpu_s,
    }
    return found | {"is_behind": is_open and _is_behind(found)}


def _is_cold(each: Sent) -> bool:
    return each.is_warm_up or each.answer.is_cold


def failure(each: Sent) -> str:
    """What a request that failed is counted as: ``status_429``, ``cut``, ..."""
    why, status = each.answer.failure, each.answer.status
    return f"{why}_{status}" if why == "status" else str(why)


def _texts(sent: Iterable[Sent]) -> dict[str, str]:
    """What the target said of the first failure of each kind, if it said anything."""
    found: dict[str, str] = {}
    for each in sent:
        if each.answer.failure and each.answer.text:
            found.setdefault(failure(each), each.answer.text)
    return found


def _is_behind(found: dict[str, Any]) -> bool:
    """Whether the machine could not send as asked: then the figures are its own, too."""
    asked, sent, lag = found["asked_per_s"], found["sent_per_s"], found["send_lag_ms"]
    late = lag["p99"] if lag["p99"] is not None else lag["max"]
    return bool(
        found["num_not_sent"]
        or (late is not None and late > _BEHIND_P99_MS)
        or (asked and sent and sent < _BEHIND_SHARE * asked and found["num_sent"] > 1)
    )


def _rate_per_s(num: int, span_ns: tuple[int, int] | None) -> float | None:
    first_ns, last_ns = span_ns or (0, 0)
    return (num - 1) * 1e9 / (last_ns - first_ns) if last_ns > first_ns else None


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def times(sent: Sequence[Sent]) -> dict[str, Any]:
    """Latencies of whole answers, in milliseconds."""
    whole = [(each, each.answer.call.times()) for each in sent if each.answer.is_whole]
    firsts = [(each, took.ttft_ns) for each, took in whole if took.ttft_ns is not None]
    tpots = [took.tpot_ns / _MS for _, took in whole if took.tpot_ns is not None]
    gaps = [gap / _MS for _, took in whole for gap in took.gaps_ns]
    return {
        "num": len(whole),
        "latency": {
            "ttft_ms": quantiles([(ns + each.lag_ns) / _MS for each, ns in firsts]),
            "e2e_ms": quantiles([(took.e2e_ns + each.lag_ns) / _MS for each, took in whole]),
        },
        "service": {
            "ttft_ms": quantiles([ns / _MS for _, ns in firsts]),
            "e2e_ms": quantiles([took.e2e_ns / _MS for _, took in whole]),
            "tpot_ms": quantiles(tpots),
            "itl_ms": quantiles(gaps),
        },
    }


def quantiles(values: Sequence[float]) -> dict[str, float | int | None]:
    """Nearest-rank quantiles, mean, maximum and number; null where there are too few for one."""
    ordered = sorted(values)
    num = len(ordered)
    found: dict[str, float | int | None] = {"num": num}
    for name, q in _QUANTILES.items():
        has_enough = round(num * (1 - q), 6) >= _MIN_BEYOND  # 100 * (1 - 0.9) is below 10
        found[name] = ordered[min(num - 1, int(num * q))] if has_enough else None
    found["mean"] = sum(ordered) / num if num else None
    found["max"] = ordered[-1] if num else None
    return found
