"""What the demo found: asked of the same analytics that users get, printed or as JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import polars as pl

from longpole.errors import LongpoleError
from longpole.vocab import Stage
from longpole_analytics.finding import Finding, find
from longpole_analytics.wording import printable
from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.demo.agent import QUESTION_ROUTE

PLANTED_STAGE = Stage.PREFILL
OBJECTIVE_RATIO = 2.0
"""The objective is this multiple of the median TTFT of a quiet engine with its prefix cached."""
SETTLE_TIMEOUT_S = 30.0
SETTLE_POLL_S = 0.2


@dataclass(frozen=True)
class Played:
    """The workload as it ran; times are Unix epoch.

    ``num_warm_up`` requests came one at a time before ``replay_start_ns``, the first of them
    without a cached prefix. ``replay_speed`` is the recorded clock's speed-up (below 1: slower).
    """

    start_ns: int
    replay_start_ns: int
    num_warm_up: int
    num_workflows: int
    num_failed: int
    replay_speed: float
    planted_version: str


@dataclass(frozen=True)
class Outcome:
    """The finding of a run, how much data it rests on, and whether it is the planted fault."""

    played: Played
    objective_ms: float
    num_spans: int
    finding: Finding | None

    @property
    def is_found(self) -> bool:
        """The finding names the stage and the prompt version of the planted edit."""
        found = self.finding
        return (
            found is not None
            and found.stage is PLANTED_STAGE
            and found.where.get("prompt_version") == self.played.planted_version
        )

    def text(self) -> str:
        """The finding as aligned lines for a terminal."""
        head = f"What we found ({self.played.num_workflows} workflows, {self.num_spans} spans)"
        if self.finding is None:
            return f"{head}\n  nothing: no route is slow with enough requests to say why"
        lines = [f"  {label:<10} {printable(line)}" for label, line in self.finding.lines()]
        exemplar = self.finding.exemplars[0][:12] if self.finding.exemplars else "TRACE"
        return "\n".join([head, *lines, f"Next   longpole explain {exemplar}"])

    def document(self) -> dict[str, Any]:
        """The same for scripts: schema ``longpole.demo/1``."""
        found = self.finding
        return {
            "schema": "longpole.demo/1",
            "is_found": self.is_found,
            "num_workflows": self.played.num_workflows,
            "num_failed": self.played.num_failed,
            "num_spans": self.num_spans,
            "replay_speed": self.played.replay_speed,
            "planted": {
                "route": QUESTION_ROUTE,
                "stage": PLANTED_STAGE.value,
                "prompt_version": self.played.planted_version,
            },
            "finding": None
            if found is None
            else {
                "route": found.route,
                "metric": found.metric,
                "quantile": found.quantile,
                "value_ms": found.value_ms,
                "objective_ms": found.objective_ms,
                "num_traces": found.num_traces,
                "num_slow": found.num_slow,
                "stage": found.stage.value,
                "share_of_excess": found.share_of_excess,
                "where": found.where,
                "of_slow": found.cause.of_slow if found.cause else None,
                "of_rest": found.cause.of_rest if found.cause else None,
                "why": list(found.why),
                "do": found.do,
                "what_if_ms": found.what_if_ms,
                "exemplars": list(found.exemplars),
            },
        }


def look(reader: Reader, played: Played) -> Outcome:
    """Wait until the collector has the whole run, then find its long pole.

    Raises:
        LongpoleError: the run has not arrived within 30 s.
    """
    _wait_settled(reader, played)
    objective_ms = OBJECTIVE_RATIO * _quiet_ttft_ms(reader, played)
    traces, stages, calls = (
        _frame(reader, f"SELECT * FROM {view} WHERE trace_id IN ({_RUN})", played.start_ns)  # noqa: S608
        for view in ("traces", "trace_stages", "calls")
    )
    num_spans = _frame(reader, _NUM_SPANS, played.start_ns).item()
    found = find(traces, stages, calls, objective_ms=objective_ms, metric="ttft_ms")
    return Outcome(played, objective_ms, num_spans, found)


_RUN = "SELECT trace_id FROM traces WHERE start_ns >= ? AND route IS NOT NULL"
_NUM_SPANS = f"SELECT sum(num_spans)::BIGINT FROM traces WHERE trace_id IN ({_RUN})"  # noqa: S608
_NUM_WHOLE = (
    "SELECT count(*) FROM traces WHERE start_ns >= ? AND route IS NOT NULL"
    " AND num_calls > 0 AND NOT list_contains(flags, 'incomplete_trace')"
)
_QUIET_TTFT = (
    "SELECT quantile_disc(ttft_ms, 0.5) FROM (SELECT ttft_ms FROM calls"
    " WHERE start_ns >= ? AND start_ns < ? AND ttft_ms IS NOT NULL ORDER BY start_ns OFFSET 1)"
)


def _wait_settled(reader: Reader, played: Played) -> None:
    """Until every workflow that answered is stored whole; a failed one may never be."""
    wanted = played.num_workflows - played.num_failed
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while (num_whole := _frame(reader, _NUM_WHOLE, played.start_ns).item()) < wanted:
        if time.monotonic() > deadline:
            raise LongpoleError(
                f"only {num_whole} of {wanted} workflows reached the collector in "
                f"{SETTLE_TIMEOUT_S:g} s: see the logs in the data folder"
            )
        time.sleep(SETTLE_POLL_S)


def _quiet_ttft_ms(reader: Reader, played: Played) -> float:
    median = _frame(reader, _QUIET_TTFT, played.start_ns, played.replay_start_ns).item()
    if median is None:
        raise LongpoleError("no warm-up request was answered: see engine.log in the data folder")
    return float(median)


def _frame(reader: Reader, query: str, *params: Value) -> pl.DataFrame:
    frame = pl.from_arrow(reader.sql(query, params))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
