"""Time measures of workflows' own steps: branches, and work on guesses.

They need what only the SDK tells: which branches the outcome used, what became of a guess. Where
nobody told, the measure is unknown. A step of a trace that stands for several counts as many.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from longpole.vocab import Span, keys
from longpole_analytics.measures import MeasureRules, Share
from longpole_analytics.weighted import weighted_share

_MS: Final = 1e6


# --- branches ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class FanOut:
    """How much of what was started side by side was of use.

    Attributes:
        num_unknown: branches of workflows that do not say which they used.
        used: share of the other branches.
        unused_ms: time of those that were not used.
        num_hedges: groups of duplicates with a winner.
        late_ms: what losers still took after the winner, in those that were not cancelled.
        num_not_cancelled: losers that ran on.
    """

    num_unknown: float
    used: Share
    unused_ms: float
    num_hedges: float
    late_ms: float
    num_not_cancelled: float


def fan_out(spans: Iterable[Span], rules: MeasureRules | None = None) -> FanOut:
    """How much of the branches the outcomes used, and what missing cancels cost.

    Args:
        spans: whole traces, in any order.
        rules: when a loser counts as not cancelled.
    """
    rules = rules or MeasureRules()
    used: dict[str, set[str]] = {}
    branches: list[Span] = []
    winners: dict[str, Span] = {}
    for span in spans:
        if keys.BRANCH_USED in span.attributes:
            used.setdefault(span.trace_id, set()).update(_listed(span.attributes[keys.BRANCH_USED]))
        if keys.BRANCH_NAME in span.attributes:
            branches.append(span)
        if keys.HEDGE_WINNER in span.attributes:
            winners[span.span_id] = span
    told = [branch for branch in branches if branch.trace_id in used]
    unused = [
        branch
        for branch in told
        if not used[branch.trace_id] & {branch.span_id, branch.attributes[keys.BRANCH_NAME]}
    ]
    after = _after_winner(branches, winners)
    late = [(ms, num) for ms, num in after if ms > rules.cancel_ms]
    return FanOut(
        _num(branches) - _num(told),
        _part(told, unused),
        sum((_length_ms(branch) or 0.0) * num_of(branch) for branch in unused),
        _num(winners.values()),
        sum(ms * num for ms, num in late),
        sum(num for _, num in late),
    )


def _after_winner(branches: list[Span], winners: dict[str, Span]) -> list[tuple[float, float]]:
    """How long each loser ran on after its group's winner had ended, ms, and how many it is."""
    groups: dict[str, list[Span]] = defaultdict(list)
    for branch in branches:
        if branch.parent_id in winners:
            groups[branch.parent_id].append(branch)
    found: list[tuple[float, float]] = []
    for group, members in groups.items():
        ends = {branch.span_id: (branch.end_ns, num_of(branch)) for branch in members}
        won_ns, _ = ends.pop(winners[group].attributes[keys.HEDGE_WINNER], (None, 1))
        if won_ns is not None:
            found += [((end - won_ns) / _MS, num) for end, num in ends.values() if end is not None]
    return found


# --- guesses -----------------------------------------------------------------------------------
PAYS: Final = "pays"
LOSES: Final = "loses"
UNDECIDED: Final = "undecided"


@dataclass(frozen=True)
class Guesses:
    """Work that was started before anybody asked for it.

    Attributes:
        hits: share of those with a verdict that were used before they expired.
        num_unknown: those without a verdict.
        wasted_ms: time of those that were not used.
        wasted_tokens: tokens of model calls below those; ``None`` where one is unknown.
        verdict: ``pays`` when even the lower end of the share's interval is enough, ``loses``
            when not even the upper end is, else ``undecided``.
    """

    hits: Share
    num_unknown: float
    wasted_ms: float
    wasted_tokens: float | None
    verdict: str


def guesses(spans: Iterable[Span], rules: MeasureRules | None = None) -> Guesses:
    """Whether working ahead pays.

    Args:
        spans: whole traces, in any order.
        rules: how many hits are enough.
    """
    rules = rules or MeasureRules()
    everything = list(spans)
    states = (keys.SPECULATION_STATE, keys.SPECULATION_TTL)
    found = [span for span in everything if any(key in span.attributes for key in states)]
    told = [span for span in found if keys.SPECULATION_STATE in span.attributes]
    missed = [span for span in told if not is_used_in_time(span)]
    hits = _part(told, missed)
    verdict = UNDECIDED
    if hits.low is not None and hits.low >= rules.least_hits:
        verdict = PAYS
    elif hits.high is not None and hits.high < rules.least_hits:
        verdict = LOSES
    return Guesses(
        hits,
        _num(found) - _num(told),
        sum((_length_ms(span) or 0.0) * num_of(span) for span in missed),
        _tokens_below(everything, missed),
        verdict,
    )


def is_used_in_time(span: Span) -> bool:
    """Whether a guess was used before it expired."""
    age, ttl = (_number(span, key) for key in (keys.SPECULATION_AGE, keys.SPECULATION_TTL))
    is_fresh = age is None or ttl is None or age <= ttl
    return span.attributes[keys.SPECULATION_STATE] == "used" and is_fresh


def _tokens_below(spans: list[Span], roots: list[Span]) -> float | None:
    children: dict[tuple[str, str | None], list[Span]] = defaultdict(list)
    for span in spans:
        children[span.trace_id, span.parent_id].append(span)
    tokens: float = 0
    seen = set[tuple[str, str]]()
    stack = list(roots)
    while stack:
        span = stack.pop()
        if (span.trace_id, span.span_id) in seen:
            continue
        seen.add((span.trace_id, span.span_id))
        stack += children[span.trace_id, span.span_id]
        if span.is_model_call and not span.is_engine:
            if span.input_tokens is None or span.output_tokens is None:
                return None
            tokens += (span.input_tokens + span.output_tokens) * num_of(span)
    return tokens


# --- weights -----------------------------------------------------------------------------------
def num_of(span: Span) -> float:
    """How many spans like it one stands for; a whole number where it is itself alone."""
    return span.weight if span.weight is not None and span.weight != 1 else 1


def _num(spans: Iterable[Span]) -> float:
    return sum(map(num_of, spans))


def _part(told: list[Span], others: list[Span]) -> Share:
    """The share of those told that are not among the others."""
    left_out = set(map(id, others))
    is_so = np.array([id(span) not in left_out for span in told], np.bool_)
    return weighted_share(is_so, np.array([num_of(span) for span in told], np.float64))


# --- spans -------------------------------------------------------------------------------------
def _length_ms(span: Span) -> float | None:
    return None if span.end_ns is None else max(span.end_ns - span.start_ns, 0) / _MS


def _number(span: Span, key: str) -> float | None:
    try:
        return float(span.attributes[key])
    except (KeyError, ValueError):
        return None


def _listed(text: str) -> list[str]:
    """A list as the store keeps it; a text that is none stands for itself."""
    try:
        found = json.loads(text)
    except ValueError:
        return [text]
    return [str(item) for item in found] if isinstance(found, list) else [text]
