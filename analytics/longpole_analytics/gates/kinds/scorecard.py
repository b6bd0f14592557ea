"""A candidate must not be worse than its baseline: the verdict of the scorecard."""

import re
from dataclasses import replace
from typing import Final

from longpole.errors import UsageError
from longpole_analytics.gates.base import Data, Finding, Gate, Options, Status
from longpole_analytics.scorecard.card import scorecard
from longpole_analytics.scorecard.rules import BETTER, EQUIVALENT, WORSE, Plan

_TARGET: Final = re.compile(r"(?:p(?P<q>\d+(?:\.\d+)?)[: ])?(?P<name>\w+)")


def _run(options: Options, data: Data) -> Finding:
    base, cand = data.sides(options["base"], options["cand"])
    rules = data.card_rules()
    if options["margin"] is not None:
        rules = replace(rules, margin=options["margin"])
    card = scorecard(base, cand, _plan(options), rules)
    told = card.document()
    n = min(base.height, cand.height)
    status: Status = "undecided"
    if card.verdict in (BETTER, EQUIVALENT):
        status = "pass"
    elif card.verdict == WORSE:
        status = "fail"
    kept = ("verdict", "reasons", "target", "guardrails", "flags", "n_needed", "n")
    return Finding(
        status,
        f"{card.verdict}: {'; '.join(card.reasons)}",
        n,
        is_certain=status == "fail",
        n_needed=card.n_needed,
        details={name: told[name] for name in kept if name in told},
    )


def _plan(options: Options) -> Plan:
    found = _TARGET.fullmatch(options["target"].strip())
    if found is None:
        raise UsageError(f"target '{options['target']}': write a metric, as ttft_ms or p95:ttft_ms")
    q = None if found["q"] is None else float(found["q"]) / 100
    if q is not None and not 0 < q < 1:
        raise UsageError(f"target '{options['target']}': a quantile lies between p0 and p100")
    return Plan(found["name"], q, options["cluster"], options["pair_by"], options["randomised"])


GATE = Gate(
    {
        "base": str,
        "cand": str,
        "target": "e2e_ms",
        "margin": None,
        "cluster": None,
        "pair_by": None,
        "randomised": False,
    },
    _run,
)
