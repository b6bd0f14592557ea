"""What the demo found: asked of the same analytics that users get, printed or as JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from longpole.errors import LongpoleError
from longpole.vocab import Stage
from longpole_analytics.finding import Finding, find
from longpole_analytics.wording import printable
from longpole_collector.stores.base import Reader, Value
from longpole_dashboard.demo.agent import QUESTION_ROUTE

PLANTED_STAGE = Stage.PREFILL
OBJECTIVE_RATIO = 1.75
"""The objective is this multiple of the median TTFT of a quiet engine with its prefix cached."""
SETTLE_TIMEOUT_S = 30.0
SETTLE_POLL_S = 0.2


@dataclass(frozen=True)
class Played:
    """The workload as it ran; ``start_ns`` is Unix epoch.

    ``replay_speed`` is how fast the recorded clock ran (1: as recorded), ``objective_ms`` what
    TTFT should have stayed under.
    """

    start_ns: int
    objective_ms: float
    num_workflows: int
    num_failed: int
    replay_speed: float
    planted_version: str


@dataclass(frozen=True)
class Outcome:
    """The finding of a run, how much data it rests on, and whether it is the planted fault."""

    played: Played
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

    def text(self, db: Path) -> str:
        """The finding as aligned lines for a terminal; ``db`` is where the traces lie."""
        head = f"What we found ({self.played.num_workflows} workflows, {self.num_spans} spans)"
        if self.finding is None:
            return f"{head}\n  nothing: no route is slow with enough requests to say why"
        lines = [f"  {label:<10} {printable(line)}" for label, line in self.finding.lines()]
        next_steps = [f"Next   longpole explain {t[:12]} --db {db}" for t in self.finding.exemplars]
        return "\n".join([head, *lines, *next_steps[:1]])

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


def objective_ms(reader: Reader, start_ns: int, num_warm_up: int) -> float:
    """What TTFT should stay under: a multiple of a quiet engine's with its prefix cached.

    The first warm-up request, which found no prefix, is left out.

    Raises:
        LongpoleError: the warm-up has not arrived within 30 s.
    """
    _wait(reader, num_warm_up, "SELECT count(ttft_ms) FROM calls WHERE start_ns >= ?", start_ns)
    return OBJECTIVE_RATIO * float(_frame(reader, _QUIET_TTFT, start_ns).item())


def look(reader: Reader, played: Played) -> Outcome:
    """Wait until the collector has the whole run, then find its long pole.

    Raises:
        LongpoleError: the run has not arrived within 30 s.
    """
    # A workflow that failed may never be whole.
    num_whole = played.num_workflows - played.num_failed
    _wait(reader, num_whole, _NUM_WHOLE, PLANTED_STAGE.value, played.start_ns)
    traces, stages, calls = (
        _frame(reader, f"SELECT * FROM {view} WHERE trace_id IN ({_RUN})", played.start_ns)  # noqa: S608
        for view in ("traces", "trace_stages", "calls")
    )
    num_spans = _frame(reader, _NUM_SPANS, played.start_ns).item()
    found = find(traces, stages, calls, objective_ms=played.objective_ms, metric="ttft_ms")
    return Outcome(played, num_spans, found)


_RUN = "SELECT trace_id FROM traces WHERE start_ns >= ? AND route IS NOT NULL"
_NUM_SPANS = f"SELECT sum(num_spans)::BIGINT FROM traces WHERE trace_id IN ({_RUN})"  # noqa: S608
_NUM_WHOLE = f"SELECT count(*) FROM trace_stages WHERE stage = ? AND trace_id IN ({_RUN})"  # noqa: S608
"""Workflows with the engine's side, which comes on its own way."""
_QUIET_TTFT = (
    "SELECT quantile_disc(ttft_ms, 0.5) FROM (SELECT ttft_ms FROM calls"
    " WHERE start_ns >= ? AND ttft_ms IS NOT NULL ORDER BY start_ns OFFSET 1)"
)


def _wait(reader: Reader, wanted: int, query: str, *params: Value) -> None:
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while (num_found := _frame(reader, query, *params).item()) < wanted:
        if time.monotonic() > deadline:
            raise LongpoleError(
                f"only {num_found} of {wanted} requests reached the collector in "
                f"{SETTLE_TIMEOUT_S:g} s: see the logs in the data folder"
            )
        time.sleep(SETTLE_POLL_S)


def _frame(reader: Reader, query: str, *params: Value) -> pl.DataFrame:
    frame = pl.from_arrow(reader.sql(query, params))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame
