"""What the page of advice shows: what to change first, and how the application is graded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from longpole_analytics.advise_loading import population_of
from longpole_analytics.advisor import AdvisorRules, advise
from longpole_analytics.audit import AuditRules
from longpole_analytics.audit_lines import audited
from longpole_analytics.thresholds import configured
from longpole_analytics.wording import quantile_name, sampled_text
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text
from longpole_dashboard.model.scope import Scope, scope
from longpole_dashboard.model.window import COLUMNS, Filters, Match

MAX_SPANS: Final = 100_000
"""Every trace is replayed with every change: fewer are read than elsewhere."""
_METRICS: Final = {
    "e2e_ms": "of the workflow",
    "time_to_first_content_ms": "of the wait for the first words",
}


@dataclass(frozen=True)
class AdvisorView:
    """Everything on the page.

    Attributes:
        scope: what was loaded.
        advice: ``longpole.advise/1``.
        audit: ``longpole.audit/1``.
        commands: what gives the two.
    """

    scope: Scope
    advice: Mapping[str, Any]
    audit: Mapping[str, Any]
    commands: tuple[str, str]

    @property
    def sampled(self) -> str | None:
        """How the workflows were sampled, a sentence; ``None`` where all are here."""
        found = self.advice.get("sampling")
        return None if found is None else f"{sampled_text(found, 'workflows')}."


def advisor(filters: Filters, reader: Reader) -> AdvisorView:
    """The page's content for these filters."""
    chosen = scope(filters, reader, most_spans=MAX_SPANS)
    rules = configured(AdvisorRules(), "advisor")
    found = population_of(reader, chosen.where, chosen.between)
    graded = audited(found, configured(AuditRules(), "audit"), rules)
    return AdvisorView(
        chosen,
        advise(found, rules).document(),
        graded.document(),
        (chosen.command("advise"), chosen.command("audit")),
    )


def each_ms(document: Mapping[str, Any]) -> float:
    """What all advice together saves a workflow, in the mean over all that came."""
    sampling = document.get("sampling")
    num = document["num_traces"] if sampling is None else sampling["num_stood_for"]
    return float(document["together_ms"] / num)


def saving(advice: Mapping[str, Any]) -> str:
    """What an advice would save: quantiles with their intervals, and of what."""
    told = advice["saving"]
    parts = []
    for name, quantile in (("p50", 0.5), ("p95", 0.95)):
        found = told[name]
        part = f"{quantile_name(quantile)} "
        if found["saved_ms"] is None:
            parts.append(f"{part}unknown (n {text.count(found['n'])})")
            continue
        part += f"{text.duration(found['saved_ms'])} less"
        if found["ci95"] is not None:
            part += f" (95 %: {text.span_of(*found['ci95'])})"
        parts.append(part)
    return f"{', '.join(parts)} {_METRICS.get(told['metric'], told['metric'])}"


def relation(advice: Mapping[str, Any]) -> str:
    """How an advice goes with those before it."""
    found = advice["relation"]
    ranks = ", ".join(str(rank) for rank in found["with"])
    return f"{found['kind']} with {ranks}" if ranks else str(found["kind"])


def facts(evidence: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """The numbers behind something, each with what it rests on."""
    return tuple(
        f"{fact['metric'].replace('_', ' ')} {text.significant(fact['value'])} "
        f"(n {text.count(fact['n'])})"
        for fact in evidence
        if fact["value"] is not None
    )


def matches(advice: Mapping[str, Any]) -> tuple[Match, ...]:
    """The slice of an advice, as far as workflows can be chosen by it."""
    return tuple(
        Match(name, value) for name, value in advice["where"].items() if name in COLUMNS and value
    )
