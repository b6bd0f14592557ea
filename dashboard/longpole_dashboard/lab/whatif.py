"""What-if, checked: the traces of one side say what the other will show, then it is played.

A prediction sees the traces of the side as it is and what the knob will do, never the other side.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from longpole.errors import UsageError
from longpole.vocab import Span, Stage
from longpole_analytics.bulk import savings_table
from longpole_analytics.frames import by_trace, spans_from_table
from longpole_analytics.loading import Source, load_requests, view_rows
from longpole_analytics.queueing import waits
from longpole_analytics.serial import opportunities
from longpole_analytics.shapes._fits import line
from longpole_analytics.span_loading import load_spans
from longpole_analytics.stages import partition
from longpole_analytics.stats import quantile
from longpole_dashboard.lab.play import BASELINE, SHAPE, Played, play
from longpole_dashboard.lab.recipe import Side
from longpole_dashboard.lab.stage_set import StageSet

SCHEMA: Final = "longpole.lab_whatif/1"
MAX_ERROR: Final = {0.5: 0.15, 0.95: 0.25}
"""By quantile: what a prediction may miss, as a share of what was measured."""
_STEPS: Final = frozenset((Stage.TOOL, Stage.RETRIEVAL, Stage.VALIDATION))
"""Stages of an application's own steps that may run side by side."""
Floats = npt.NDArray[np.float64]


class Known(NamedTuple):
    """What is known of the side as it is: its requests, and the spans of each, in their order."""

    requests: pl.DataFrame
    spans: pa.Table
    traces: dict[str, list[Span]]

    def ms(self, column: str) -> Floats:
        """A column of the requests; 0 where it is unknown."""
        found: Floats = self.requests[column].cast(pl.Float64).fill_null(0.0).to_numpy()
        return found


Predict = Callable[[Known], Floats]
"""Milliseconds of each request with the knob turned."""


@dataclass(frozen=True)
class Knob:
    """One knob: what is turned, both sides, and how the outcome is told from the first."""

    name: str
    text: str
    before: Side
    after: Side
    predict: Predict


class Quantile(NamedTuple):
    """A quantile of the whole time: before, as predicted, as measured; the error is signed."""

    quantile: float
    before_ms: float
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted_ms / self.measured_ms - 1

    @property
    def is_near(self) -> bool:
        """Whether it is within the bar."""
        return abs(self.error) <= MAX_ERROR[self.quantile]


class Checked(NamedTuple):
    """A knob, turned: its quantiles and how many requests stand behind each side."""

    knob: Knob
    seed: int
    quantiles: tuple[Quantile, ...]
    num: tuple[int, int]

    def document(self) -> dict[str, Any]:
        """One entry of ``longpole.lab_whatif/1``."""
        return {
            "knob": self.knob.name,
            "text": self.knob.text,
            "seed": self.seed,
            "n": list(self.num),
            "quantiles": [
                {**each._asdict(), "error": each.error, "is_near": each.is_near}
                for each in self.quantiles
            ],
        }


# --- how the outcome is told ---------------------------------------------------------------------


def faster(stage: Stage, faster_by: float) -> Predict:
    """Every trace is replayed with a stage's own time cut, as ``longpole whatif`` does."""

    def predict(known: Known) -> Floats:
        found = savings_table(known.spans, [(stage, faster_by)])
        ids = [f"{hi:016x}{lo:016x}" for hi, lo in zip(found.trace_hi, found.trace_lo, strict=True)]
        saved = dict(zip(ids, found.saved_ns[:, 0].tolist(), strict=True))
        return known.ms("e2e_ms") - np.array([saved[i] for i in known.requests["trace_id"]]) / 1e6

    return predict


def shorter(column: str, by_ms: float) -> Predict:
    """A stage takes so much less, where it takes so much."""
    return lambda known: known.ms("e2e_ms") - np.minimum(known.ms(column), by_ms)


def side_by_side(stage: Stage) -> Predict:
    """A stage's steps that run one after another need not; see ``longpole advise``.

    The steps of other stages stay where they are.
    """

    def predict(known: Known) -> Floats:
        saved = []
        for trace_id in known.requests["trace_id"]:
            spans = [
                span
                for span in known.traces[trace_id]
                if span.stage == stage or span.stage not in _STEPS
            ]
            found = opportunities(partition(spans), spans)
            saved.append(max((each.saved_ns for each in found), default=0.0))
        return known.ms("e2e_ms") - np.array(saved) / 1e6

    return predict


def fewer_output_tokens(share: float) -> Predict:
    """Decoding takes as long per token as before."""

    def predict(known: Known) -> Floats:
        tokens = known.ms("output_tokens")
        steps = np.maximum(tokens - 1, 1)
        left = np.maximum(np.round(tokens * share) - 1, 0)
        return known.ms("e2e_ms") - known.ms("later_decode_ms") * (1 - left / steps)

    return predict


def fewer_input_tokens(share: float) -> Predict:
    """Prefill falls along its line over what was not cached."""

    def predict(known: Known) -> Floats:
        uncached = known.ms("input_tokens") - known.ms("cached_input_tokens")
        fitted = line(uncached, known.ms("prefill_ms"))
        if fitted is None:
            return known.ms("e2e_ms")
        return known.ms("e2e_ms") - fitted.slope * uncached * (1 - share)

    return predict


def other_rate(factor: float, servers: int) -> Predict:
    """The arrivals are played, more slowly or faster, to so many servers."""

    def predict(known: Known) -> Floats:
        served = sum(known.ms(f"{s}_ms") for s in ("prefill", "first_decode", "later_decode"))
        starts = known.ms("start_ns") / 1e6
        order = np.argsort(starts, kind="stable")
        at = (starts[order] - starts.min()) / factor
        wait = np.empty(len(starts))
        wait[order] = waits(at, np.asarray(served)[order], servers)
        return known.ms("e2e_ms") - known.ms("queue_ms") + wait

    return predict


# --- the check -----------------------------------------------------------------------------------


def check(stage: StageSet, knob: Knob, seed: int, scale: float = 1.0) -> Checked:
    """Play both sides, predict the second from the first's traces, compare.

    Args:
        stage: where.
        knob: what is turned.
        seed: of everything that is drawn.
        scale: of the number of requests.

    Raises:
        LongpoleError: it could not be played.
    """
    played = asyncio.run(play(stage, knob.name, (knob.before, knob.after), seed, scale))
    before = _known(stage, played, BASELINE)
    after = _requests(stage, played, SHAPE)["e2e_ms"].to_list()
    predicted = knob.predict(before)
    quantiles = tuple(
        Quantile(
            q, *(_of(values, q) for values in (before.ms("e2e_ms").tolist(), predicted, after))
        )
        for q in MAX_ERROR
    )
    return Checked(knob, seed, quantiles, (before.requests.height, len(after)))


def _of(values: Sequence[float] | Floats, q: float) -> float:
    found = quantile(list(values), q)
    if found is None:
        raise UsageError("no request was answered: nothing to compare")
    return float(found)  # numpy's own numbers are no JSON


def _requests(stage: StageSet, played: Played, side: str) -> pl.DataFrame:
    """A side's requests that were answered."""
    since_ns, until_ns = played.window
    return load_requests(
        Source(url=stage.url), where=_answered(played, side), since_ns=since_ns, until_ns=until_ns
    )


def _known(stage: StageSet, played: Played, side: str) -> Known:
    requests = _requests(stage, played, side)
    spans = load_spans(Source(url=stage.url), _answered(played, side), played.window)
    rows = view_rows(stage.reader, "spans", *played.window)
    own = rows.filter(pl.col("trace_id").is_in(requests["trace_id"].to_list()))
    return Known(requests, spans, by_trace(spans_from_table(own)))


def _answered(played: Played, side: str) -> str:
    return f"{played.condition(side)} AND outcome = 'accepted'"
