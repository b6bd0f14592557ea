"""The checklist: which lines an audit has, in their order."""

from typing import Final

from longpole_analytics import audit_calls, audit_flow
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.audit import Audit, AuditRules
from longpole_analytics.weighted import sampling

LINES: Final = (
    audit_flow.measured,
    audit_calls.streaming,
    audit_calls.buffering,
    audit_flow.concurrency,
    audit_flow.backoff,
    audit_calls.models,
    audit_calls.cache_layers,
    audit_calls.prompt_order,
    audit_flow.speculation,
    audit_flow.taxes,
)
OF_KEPT: Final = ("concurrency_capped", "prompt_order")
"""Lines that ask which request ran beside or before which: where traces were sampled, of those
kept."""


def audited(
    pop: Population | None, rules: AuditRules | None = None, advisor: AdvisorRules | None = None
) -> Audit:
    """Every line graded.

    Args:
        pop: the traces; ``None`` gives no lines.
        rules: what the lines need.
        advisor: thresholds of the advisor's rules that some lines ask.
    """
    if pop is None or not pop.traces["is_sound"].any():
        return Audit(0, ())
    rules, advisor = rules or AuditRules(), advisor or AdvisorRules()
    sound = pop.traces.filter("is_sound")
    lines = tuple(line(pop, rules, advisor) for line in LINES)
    return Audit(sound.height, lines, sampling(sound, OF_KEPT))
