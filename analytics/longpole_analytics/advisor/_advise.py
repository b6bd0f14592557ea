"""From what the rules found to ranked advice: replayed, compared, and never counted twice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from longpole import family
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._replay import Change, Floats, together
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import Candidate, Rule
from longpole_analytics.weighted import is_shown as is_carried
from longpole_analytics.weighted import mean_of, median_of, quantile, sampling
from longpole_analytics.whatif_population import changes

SCHEMA: Final = "longpole.advise/1"
ASSUMPTION: Final = "if everything else stays equal"
QUANTILES: Final = (0.5, 0.95)
MAX_CANDIDATES: Final = 60
"""So many are replayed, those with the largest sums first."""
MAX_DRAWN: Final = 1_000
"""Traces that an interval is drawn from, evenly spread over their wall times: more only make it
narrower."""
NUM_EXAMPLES: Final = 3
INDEPENDENT: Final = "independent"
OVERLAPS: Final = "overlaps"
EXCLUSIVE: Final = "exclusive"
CONDITIONAL: Final = "conditional"
OF_KEPT: Final = ("avoidable_calls", "cacheable_order", "client_serialization", "cold_paths",
                  "unstable_prefix")  # fmt: skip
"""Rules that ask which request came before which: where traces were sampled, of those kept."""
_RARE: Final = 5
"""So many times the least saving makes an advice on few traces worth telling."""
_MOST: Final = 0.9
_LITTLE: Final = 0.1


class Saving(NamedTuple):
    """What a quantile of the route's traces would fall by, ms, with its 95 % interval.

    ``None`` where too few traces carry it.
    """

    quantile: float
    saved_ms: float | None
    ci95: tuple[float, float] | None
    n: int

    def document(self) -> dict[str, Any]:
        """As ``longpole.advise/1`` has it."""
        ci95 = list(self.ci95) if self.ci95 else None
        return {"saved_ms": self.saved_ms, "ci95": ci95, "n": self.n}


@dataclass(frozen=True)
class Advice:
    """One advice.

    Attributes:
        rank: from 1, the most time saved first.
        rule: the name of its rule.
        found: what the rule found.
        savings: of the median and of the p95 of the route's traces.
        total_ms: sum over the traces.
        adds_ms: what it saves on top of all that rank before it.
        relation: ``independent`` of those before it, ``overlaps`` with some, ``exclusive`` (they
            save the same time), or ``conditional`` (it saves more once they are done).
        related: ranks of those.
        share: of the route's traces that it touches.
        trace_ids: those that would gain most.
    """

    rank: int
    rule: str
    found: Candidate
    savings: tuple[Saving, ...]
    total_ms: float
    adds_ms: float
    relation: str
    related: tuple[int, ...]
    share: float
    trace_ids: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As ``longpole.advise/1`` has it."""
        found = self.found
        return {
            "rank": self.rank,
            "rule": self.rule,
            "where": dict(found.where),
            "title": found.title,
            "change": found.change,
            "verify": found.verify,
            "confidence": found.confidence,
            "num_traces": len(found.touched),
            "share_of_traces": self.share,
            "evidence": [_finite(fact.document()) for fact in found.evidence],
            "saving": {
                "metric": found.metric,
                "p50": self.savings[0].document(),
                "p95": self.savings[1].document(),
                "total_ms": self.total_ms,
                "adds_ms": self.adds_ms,
                "usd": found.usd,
            },
            "relation": {"kind": self.relation, "with": list(self.related)},
            "trace_ids": list(self.trace_ids),
        }


@dataclass(frozen=True)
class Report:
    """All advice on a population, and how much of it could be judged.

    Numbers of traces are of those looked at. Times, money, shares and medians are weighed: of all
    traces that came, as ``sampling`` says, where they were sampled.
    """

    num_traces: int
    num_left_out: int
    advice: tuple[Advice, ...]
    together_ms: float
    sampling: dict[str, Any] | None = None

    @property
    def num_stood_for(self) -> float:
        """How many traces came, those that were not kept included."""
        return self.sampling["num_stood_for"] if self.sampling else self.num_traces

    def document(self) -> dict[str, Any]:
        """The document of ``longpole advise --json``."""
        return {
            "schema": SCHEMA,
            "num_traces": self.num_traces,
            "num_left_out": self.num_left_out,
            "assumption": ASSUMPTION,
            "together_ms": self.together_ms,
            "advice": [one.document() for one in self.advice],
            **({} if self.sampling is None else {"sampling": self.sampling}),
        }


class _Judged(NamedTuple):
    name: str
    order: int
    found: Candidate
    saved_ns: Floats
    total_ns: float
    savings: tuple[Saving, ...]
    share: float

    @property
    def key(self) -> tuple[float, float, int, str]:
        """Most time first, then most money, then the rules' order."""
        return -self.total_ns, -(self.found.usd or 0.0), self.order, self.name


def advise(
    pop: Population | None, rules: AdvisorRules | None = None, only: Sequence[str] = ()
) -> Report:
    """What to change, the most time saved for users first.

    Args:
        pop: the traces; ``None`` gives no advice.
        rules: the thresholds.
        only: names of rules; none is all.
    """
    rules = rules or AdvisorRules()
    if pop is None:
        return Report(0, 0, (), 0.0)
    found = [
        (name, rule.order, candidate)
        for name, rule in members().items()
        if not only or name in only
        for candidate in rule.find(pop, rules)
    ]
    weight = pop.spans["weight"].to_numpy()
    found.sort(key=lambda each: -_total(each[2].replayed.less_ns, weight[each[2].replayed.rows]))
    judged = _judged(pop, found[:MAX_CANDIDATES], rules)[: rules.max_advice]
    advice, whole_ms = _ranked(pop, judged)
    sound = pop.traces.filter("is_sound")
    left_out = pop.traces.height - sound.height
    return Report(sound.height, left_out, advice, whole_ms, sampling(sound, OF_KEPT))


def members() -> dict[str, Rule]:
    """The rules by name, those of others included."""
    return family.load("longpole_analytics.advisor", "ADVICE", Rule)


def _judged(
    pop: Population, found: Sequence[tuple[str, int, Candidate]], rules: AdvisorRules
) -> list[_Judged]:
    """Those worth telling, with what they would save, in order."""
    saved = pop.replayer.saved_ns([candidate.replayed for _, _, candidate in found])
    every = pop.traces["weight"].to_numpy()
    judged = []
    for (name, order, candidate), saved_ns in zip(found, saved, strict=True):
        route = pop.route_of(candidate.where.get("route"))
        places = route["trace"].to_numpy()
        if not len(places):
            continue
        wall_ms, saved_ms = route["wall_ms"].to_numpy(), saved_ns[places] / 1e6
        weight = every[places]
        share = mean_of(np.isin(places, candidate.touched).astype(np.float64), weight)
        mean_ms, usual = mean_of(saved_ms, weight), median_of(wall_ms, weight)
        least = max(rules.min_saved_ms, rules.min_saved_share * usual)
        is_felt = mean_ms >= least
        is_told = share >= rules.min_share and (is_felt or candidate.is_load)
        # what hardly ever happens may still take long each time
        if not is_told and not (share > 0 and mean_ms >= _RARE * least):
            continue
        savings, total_ns = _savings(wall_ms, saved_ms, weight), _total(saved_ns, every)
        judged.append(_Judged(name, order, candidate, saved_ns, total_ns, savings, share))
    return sorted(judged, key=lambda one: one.key)


def _total(values: Floats, weight: Floats) -> float:
    return float((values * weight).sum())


def _savings(wall_ms: Floats, saved_ms: Floats, weight: Floats) -> tuple[Saving, ...]:
    """The fall of the quantiles; the interval is a bootstrap over traces."""
    n = len(wall_ms)
    order = np.argsort(wall_ms, kind="stable")
    wall_ms, saved_ms, weight = wall_ms[order], saved_ms[order], weight[order]
    replayed = wall_ms - saved_ms
    again = np.argsort(replayed, kind="stable")
    replayed, weight_again = replayed[again], weight[again]
    step = max(math.ceil(n / MAX_DRAWN), 1)
    some = slice(step // 2, None, step)
    drawn = changes(wall_ms[some], saved_ms[some], QUANTILES, weight=weight[some])
    found = []
    for q, change in zip(QUANTILES, drawn, strict=True):
        was, would = quantile(wall_ms, weight, q), quantile(replayed, weight_again, q)
        if was is None or would is None or not is_carried(weight, q):
            found.append(Saving(q, None, None, n))
            continue
        ci95 = None if change.ci95 is None else (0.0 - change.ci95[1], 0.0 - change.ci95[0])
        found.append(Saving(q, was.value - would.value, ci95, n))
    return tuple(found)


def _ranked(pop: Population, judged: Sequence[_Judged]) -> tuple[tuple[Advice, ...], float]:
    """Advice with what each adds to those before it, and what all save together, ms."""
    unions = [
        together(one.found.replayed for one in judged[:place])
        for place in range(2, len(judged) + 1)
    ]
    weight = pop.traces["weight"].to_numpy()
    sums = [_total(saved, weight) / 1e6 for saved in pop.replayer.saved_ns(unions)]
    advice: list[Advice] = []
    before = 0.0
    for place, one in enumerate(judged):
        own = one.total_ns / 1e6
        after = own if place == 0 else max(sums[place - 1], before)
        adds = after - before
        related = tuple(
            earlier.rank
            for earlier in advice
            if earlier.total_ms > 0 and np.isin(earlier.found.touched, one.found.touched).any()
        )
        kind = _relation(own, adds) if related else INDEPENDENT
        advice.append(
            Advice(
                rank=place + 1,
                rule=one.name,
                found=one.found,
                savings=one.savings if _is_timed(one) else _unknown(one.savings),
                total_ms=own,
                adds_ms=adds,
                relation=kind,
                related=() if kind == INDEPENDENT else related,
                share=one.share,
                trace_ids=_examples(pop, one),
            )
        )
        before = after
    return tuple(advice), before


def _is_timed(one: _Judged) -> bool:
    """Whether the rule knew how much time is at stake."""
    change: Change = one.found.replayed
    return bool(len(change.rows) or len(change.members)) or one.found.evidence[-1].value is not None


def _unknown(savings: tuple[Saving, ...]) -> tuple[Saving, ...]:
    return tuple(saving._replace(saved_ms=None, ci95=None) for saving in savings)


def _relation(own: float, adds: float) -> str:
    if own <= 0:
        return CONDITIONAL if adds > 0 else INDEPENDENT
    if adds > own * (2 - _MOST):
        return CONDITIONAL
    if adds >= _MOST * own:
        return INDEPENDENT
    return EXCLUSIVE if adds <= _LITTLE * own else OVERLAPS


def _examples(pop: Population, one: _Judged) -> tuple[str, ...]:
    """Ids of the touched traces that would gain most."""
    touched = np.sort(one.found.touched)
    gain = one.saved_ns[touched]
    best = touched[np.argsort(-gain, kind="stable")[:NUM_EXAMPLES]]
    ids = pop.traces["trace_id"]
    return tuple(ids[int(place)] for place in best)


def _finite(document: dict[str, Any]) -> dict[str, Any]:
    value = document["value"]
    if isinstance(value, float) and not math.isfinite(value):
        document["value"] = None
    return document
