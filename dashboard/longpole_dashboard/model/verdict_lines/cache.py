"""On top of Cache: what came from it, and the largest loss."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from longpole_dashboard.model import text
from longpole_dashboard.model.cache import CacheView, usd
from longpole_dashboard.model.verdict_lines.base import FEW, MAX_SENTENCE, Line, name, sized

MIN_GAP: Final = 0.1
"""Shares of two prompt versions that lie nearer are not set against each other."""
_ALIKE: Final = ("route", "model_key", "model", "response_model", "request_model", "provider")
"""Columns in which two versions of a prompt must not differ to be set against each other."""


class _Gap(NamedTuple):
    """A prompt version that reads less of its input from the cache than one of like calls."""

    low: Mapping[str, Any]
    high: Mapping[str, Any]

    @property
    def tokens(self) -> float:
        """What the low one would read more at the share of the high one."""
        more: float = self.high["hit_rate_tokens"] - self.low["hit_rate_tokens"]
        return more * float(self.low["input_tokens"])


def of_cache(shown: CacheView) -> Line:
    """What came from the cache, and what is lost most: to a prompt version, or to a cause.

    Of calls that tell their counts; where none does the page says so.
    """
    document = shown.document
    share = (document["hits"]["all"] or {}).get("hit_rate_tokens")
    if share is None:
        return Line("No verdict: the calls that tell what came from a cache had no input.")
    base = f"{text.percent(share)} of the input came from a cache ({sized(shown.num_known)})"
    gap = _gap(document["hits"]["slices"])
    # the page has those that lost most money, then tokens, first
    miss = next(iter(document["misses"]), None)
    if gap is not None and gap.tokens > (0 if miss is None else miss["lost_tokens"]):
        return _of_gap(base, gap)
    if miss is None:
        if any(row["num_calls"] for row in document["achievable"]):
            return Line(f"{base}; no prompt missed what it could have read.")
        return Line(
            f"{base}; why the rest missed is not known: no call tells hashes of its prompt."
        )
    cause = miss["cause"].replace("_", " ")
    lost = f"{text.counted(miss['lost_tokens'], 'token')} ({sized(miss['num_misses'])})"
    if miss["lost_usd"] is None:
        line = f"{base}; most is lost by misses of cause {cause}: {lost}."
    else:
        line = f"{base}; dearest are misses of cause {cause}: {usd(miss['lost_usd'])}, {lost}."
    return Line(line, (f"Next, {cause}: {name(miss['edit'], MAX_SENTENCE)}.",))


def _gap(slices: Sequence[Mapping[str, Any]]) -> _Gap | None:
    """The largest gap, by tokens, between two versions of a route's prompt on one model."""
    alike: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for row in slices:
        is_known = row["hit_rate_tokens"] is not None and row["num_known"] >= FEW
        if is_known and row.get("prompt_version") is not None:
            alike.setdefault(tuple(row.get(column) for column in _ALIKE), []).append(row)
    pairs = [
        _Gap(low, max(rows, key=lambda row: float(row["hit_rate_tokens"])))
        for rows in alike.values()
        for low in rows
    ]
    apart = [
        pair
        for pair in pairs
        if pair.high["hit_rate_tokens"] - pair.low["hit_rate_tokens"] >= MIN_GAP
    ]
    return max(apart, key=lambda pair: pair.tokens, default=None)


def _of_gap(base: str, gap: _Gap) -> Line:
    low, high = (name(str(row["prompt_version"])) for row in gap)
    route = name(gap.low.get("route") or "route (unknown)")
    first, second = (text.percent(row["hit_rate_tokens"]) for row in gap)
    sizes = " and ".join(text.count(row["num_known"]) for row in gap)
    return Line(
        f"{base}; {route} {low} gets {first} where {high} gets {second} (n {sizes}).",
        (
            f"Next: compare the first lines of {low} with those of {high}: what changes from call "
            "to call (a time, an id) belongs at the end of the prompt.",
        ),
    )
