"""An application graded from its traces against the checklist of the field.

Each line passes, fails, or cannot be seen in these traces; the last is no blame, and no praise.
The lines themselves are in ``audit_calls`` and ``audit_flow``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import polars as pl

from longpole_analytics.advisor.base import Fact

SCHEMA: Final = "longpole.audit/1"
PASS: Final = "pass"  # noqa: S105 - no password
FAIL: Final = "fail"
UNSEEN: Final = "not observable"
NUM_EXAMPLES: Final = 3


@dataclass(frozen=True)
class AuditRules:
    """What a line needs; ``[analytics.audit]`` in ``longpole.toml`` overrides it.

    Attributes:
        min_calls: fewest calls, or traces, that are judged.
        named_share: of the traces that must say their route.
        max_bad_share: of the answers that may come in one piece, or from a buffer.
        max_refused_share: of the calls that may be refused for their rate.
        cap_share: of the calls that began at the highest concurrency seen: a cap shows as many.
        burst_ratio: highest concurrency over its p95, beyond which nothing caps it,
        min_burst: if it is also so high.
        min_waits: waits between attempts that tell of back-off.
        min_wait_ms: a shorter wait is none.
        jitter_spread: (p90 - p10) / p50 of waits of one kind, below which they have no jitter.
        growth: of a wait over the one before it, in the median.
        least_hits: share of guesses that must be used.
        told_share: of the calls that must tell what is measured of them.
    """

    min_calls: int = 20
    named_share: float = 0.95
    max_bad_share: float = 0.05
    max_refused_share: float = 0.01
    cap_share: float = 0.1
    burst_ratio: float = 4.0
    min_burst: int = 20
    min_waits: int = 8
    min_wait_ms: float = 20.0
    jitter_spread: float = 0.1
    growth: float = 1.2
    least_hits: float = 0.3
    told_share: float = 0.5


class Line(NamedTuple):
    """One line of the audit.

    ``reason`` is one sentence; ``next_step`` what to do, also where nothing can be seen;
    ``trace_ids`` are traces that show it.
    """

    check: str
    question: str
    grade: str
    reason: str
    next_step: str
    evidence: tuple[Fact, ...] = ()
    trace_ids: tuple[str, ...] = ()
    slices: tuple[dict[str, Any], ...] = ()

    def document(self) -> dict[str, Any]:
        """As ``longpole.audit/1`` has it."""
        told = {
            "check": self.check,
            "question": self.question,
            "grade": self.grade,
            "reason": self.reason,
            "next_step": self.next_step,
            "evidence": [_finite(fact) for fact in self.evidence],
            "trace_ids": list(self.trace_ids),
        }
        return {**told, "slices": list(self.slices)} if self.slices else told


@dataclass(frozen=True)
class Audit:
    """All lines, in the order of the checklist.

    Numbers are of what was looked at; shares and medians are weighed where traces were sampled.
    """

    num_traces: int
    lines: tuple[Line, ...]
    sampling: dict[str, Any] | None = None

    def count(self, grade: str) -> int:
        """How many lines have a grade."""
        return sum(line.grade == grade for line in self.lines)

    def document(self) -> dict[str, Any]:
        """The document of ``longpole audit --json``."""
        return {
            "schema": SCHEMA,
            "num_traces": self.num_traces,
            "num_pass": self.count(PASS),
            "num_fail": self.count(FAIL),
            "num_not_observable": self.count(UNSEEN),
            "lines": [line.document() for line in self.lines],
            **({} if self.sampling is None else {"sampling": self.sampling}),
        }


def ids(traces: pl.DataFrame, numbers: pl.Series | Sequence[int]) -> tuple[str, ...]:
    """Ids of the first few of some traces.

    Args:
        traces: of a population.
        numbers: which; they may come more than once.
    """
    wanted = pl.Series(numbers, dtype=pl.Int64).unique(maintain_order=True).head(NUM_EXAMPLES)
    return tuple(traces["trace_id"].gather(wanted.cast(pl.UInt32)))


def _finite(fact: Fact) -> dict[str, Any]:
    told = fact.document()
    if told["value"] is not None and not math.isfinite(told["value"]):
        told["value"] = None
    return told
