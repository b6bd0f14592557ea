"""What a page says of a scorecard: changes with their intervals, mix apart from time, means."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from longpole_analytics.wording import quantile_name
from longpole_dashboard.model import text
from longpole_dashboard.model.cards import Tone
from longpole_dashboard.model.stages import metric_name


class Moved(NamedTuple):
    """A quantile on both sides and its change; ``tone`` is grey where the interval holds 0.

    ``change``, ``low`` and ``high`` are shares: 0.1 is 10 % more. ``why`` says why they are not
    known; ``n`` is of the smaller side.
    """

    name: str
    base_ms: float | None
    cand_ms: float | None
    change: float | None
    low: float | None
    high: float | None
    tone: Tone
    n: int
    why: str


_WHY: Final = {
    "too_few": "too few samples",
    "not_reached": "too much did not end",
    "zero": "is zero",
}


def moved(document: Mapping[str, Any]) -> tuple[Moved, ...]:
    """The quantiles of a comparison, in its order."""
    return tuple(_moved(row) for row in document["metrics"])


def _moved(row: Mapping[str, Any]) -> Moved:
    low, high = row["ci95"] or (None, None)
    tone: Tone = "grey"
    if low is not None and low > 1:
        tone = "worse"
    elif high is not None and high < 1:
        tone = "better"
    changes = [None if end is None else end - 1 for end in (row["ratio"], low, high)]
    name = f"{quantile_name(row['quantile'])} {metric_name(row['name'])}"
    return Moved(
        name,
        row["base"],
        row["cand"],
        changes[0],
        changes[1],
        changes[2],
        tone,
        min(row["n"]),
        _WHY.get(row["reason"], ""),
    )


def mix_lines(document: Mapping[str, Any]) -> tuple[str, ...]:
    """What changed because other work was asked for, apart from what took another time.

    The change as recorded is the product of both: what an equal mix leaves is the time's, the rest
    the mix's.
    """
    mix, target = document["mix"], document["target"]
    if not mix["is_standardised"]:
        return (f"Nothing is taken off for the mix: {mix['reason']}.",)
    what = " and ".join(mix["shifted"])
    lines = [
        f"The mix of {what} differs: {text.percent(mix['moved_share'], 0)} of the requests are "
        "elsewhere. Both sides are weighted to their common mix, "
        f"{text.percent(min(mix['common_share']), 0)} of a side at least."
    ]
    for row in document["metrics"]:
        raw = row["raw"]
        if row["name"] != target["metric"] or row["ratio"] is None or raw is None:
            continue
        if not raw[0] or not raw[1]:
            continue
        whole = raw[1] / raw[0]
        lines.append(
            f"{quantile_name(row['quantile'])}: {change(whole - 1)} as recorded; "
            f"{change(row['ratio'] - 1)} is time, at an equal mix; "
            f"{change(whole / row['ratio'] - 1)} is the mix."
        )
    return tuple(lines)


def change(ratio: float | None) -> str:
    """A relative change with its sign: ``+12 %``, ``-0.4 %``; a dash if unknown."""
    if ratio is None:
        return text.UNKNOWN
    if not ratio:
        return "0 %"
    return f"{100 * ratio:+.{0 if abs(ratio) >= 0.1 else 1}f} %"


def ends(low: float | None, high: float | None) -> str:
    """The interval of a relative change; a dash if unknown."""
    if low is None and high is None:
        return text.UNKNOWN
    return f"{change(low)} to {change(high) if high is not None else 'unbounded'}"


class Contrast(NamedTuple):
    """A rate or a mean on both sides, its change, and the change's 95 % interval, as text."""

    name: str
    base: str
    cand: str
    change: str
    interval: str


def contrasts(document: Mapping[str, Any]) -> tuple[Contrast, ...]:
    """The rates of a comparison, then its means of costs, quality and tokens."""
    rates = (_rate(row) for row in document["rates"])
    return (*rates, *(_mean(row) for row in document["means"]))


def _rate(row: Mapping[str, Any]) -> Contrast:
    low, high = (f"{100 * end:+.2f}" for end in row["ci95"])
    return Contrast(
        row["name"].replace("_", " "),
        text.percent(row["base"], 2),
        text.percent(row["cand"], 2),
        f"{100 * row['difference']:+.2f} points",
        f"{low} to {high} points",
    )


def _mean(row: Mapping[str, Any]) -> Contrast:
    low, high = row["ci95"] or (None, None)
    value, interval = _number(row["value"]), text.UNKNOWN
    if row["kind"] == "ratio":
        less = [None if each is None else each - 1 for each in (row["value"], low, high)]
        value, interval = change(less[0]), ends(*less[1:])
    elif low is not None and high is not None:
        interval = f"{_number(low)} to {_number(high)}"
    name = f"mean {row['name'].replace('_', ' ')}"
    return Contrast(name, _number(row["base"]), _number(row["cand"]), value, interval)


def _number(value: float | None) -> str:
    return text.UNKNOWN if value is None else text.significant(value)
