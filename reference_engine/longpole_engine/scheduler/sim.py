"""The planner on a virtual clock: what a policy would do to a load, without a model.

Books and page tables are the engine's own; only the time of a step is a formula. No torch.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from longpole_engine.config import Preemption
from longpole_engine.kv.manager import KvManager, NoMover
from longpole_engine.scheduler.core import Limits
from longpole_engine.scheduler.ledger import Ledger, Sequence, Step


class Arrival(NamedTuple):
    """A request of the load; times in seconds."""

    at_s: float
    prompt: tuple[int, ...]
    num_output: int
    priority: int = 0
    slo_s: float | None = None
    deadline_s: float | None = None
    session: str | None = None
    salt: str = ""


class Outcome(NamedTuple):
    """What became of a request; times are ``None`` if it was refused or expired."""

    arrival: Arrival
    scheduled_s: float | None
    first_token_s: float | None
    finished_s: float | None
    num_cached: int
    num_preempted: int
    is_refused: bool = False

    @property
    def ttft_s(self) -> float | None:
        """Arrival to first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival.at_s


class StepCost(NamedTuple):
    """Seconds of a step: fixed, per prompt token, and per decoding row."""

    fixed_s: float = 0.002
    prefill_token_s: float = 0.002
    decode_s: float = 0.008
    decode_row_s: float = 0.002

    def of(self, step: Step) -> float:
        """Seconds a step takes."""
        num_prompt = sum(piece.num_tokens for _, piece in step.prefill)
        seconds = self.fixed_s + num_prompt * self.prefill_token_s
        if step.decode:
            seconds += self.decode_s + len(step.decode) * self.decode_row_s
        return seconds


def simulate(
    arrivals: Iterable[Arrival],
    limits: Limits,
    *,
    kv: KvManager,
    cost: StepCost | None = None,
    preemption: Preemption = Preemption.RECOMPUTE,
    max_queue: int = 100_000,
    watch: Callable[[Ledger, Step], None] | None = None,
) -> list[Outcome]:
    """Run a load to its end.

    Args:
        arrivals: the load, in any order.
        limits: sizes and policy.
        kv: page tables, as :func:`pages` makes them.
        cost: time of a step.
        preemption: what becomes of pages of a sequence put back.
        max_queue: a request that finds so many waiting is refused.
        watch: called after every step.

    Returns:
        One outcome an arrival, in order of time.
    """
    cost = cost or StepCost()
    line = sorted(arrivals, key=lambda arrival: arrival.at_s)
    ledger = Ledger(kv, limits, preemption, cost.prefill_token_s)
    runs = [_Run(arrival) for arrival in line]
    now_s, num_seen = 0.0, 0
    while num_seen < len(line) or ledger.waiting or ledger.running:
        if not (ledger.waiting or ledger.running):
            now_s = max(now_s, line[num_seen].at_s)
        while num_seen < len(line) and line[num_seen].at_s <= now_s:
            runs[num_seen].join(ledger, str(num_seen), is_full=len(ledger.waiting) >= max_queue)
            num_seen += 1
        step = ledger.step(now_s)
        for seq in step.admitted:
            run = runs[int(seq.id)]
            run.scheduled_s = now_s if run.scheduled_s is None else run.scheduled_s
        now_s += cost.of(step)
        for seq, piece in (*step.prefill, *step.decode):
            ledger.computed(seq, piece.num_tokens)
            if seq.num_left == 0:
                runs[int(seq.id)].token(ledger, now_s)
        if watch is not None:
            watch(ledger, step)
    return [run.outcome() for run in runs]


def pages(num_pages: int, num_cached: int | None = None) -> KvManager:
    """Page tables without memory behind them."""
    return KvManager(num_pages, NoMover(), num_cached)


class _Run:
    """One request under way."""

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival
        self._seq: Sequence | None = None
        self.scheduled_s: float | None = None
        self._first_s: float | None = None
        self._finished_s: float | None = None

    def join(self, ledger: Ledger, name: str, *, is_full: bool) -> None:
        if is_full:
            return
        a = self._arrival
        deadline_s = None if a.deadline_s is None else a.at_s + a.deadline_s
        self._seq = Sequence(
            name,
            list(a.prompt),
            len(a.prompt) + a.num_output,
            a.at_s,
            a.priority,
            a.slo_s,
            deadline_s,
            a.salt,
            a.session,
        )
        ledger.add(self._seq)

    def token(self, ledger: Ledger, now_s: float) -> None:
        assert self._seq is not None  # noqa: S101 - it runs, so it has joined
        # an answer's token differs from sequence to sequence, as a model's would
        self._seq.tokens.append(-1 - int(self._seq.id))
        self._first_s = now_s if self._first_s is None else self._first_s
        if len(self._seq.tokens) >= self._seq.max_tokens:
            self._finished_s = now_s
            ledger.remove(self._seq.id)

    def outcome(self) -> Outcome:
        seq = self._seq
        return Outcome(
            self._arrival,
            self.scheduled_s,
            self._first_s,
            self._finished_s,
            (seq.num_cached or 0) if seq else 0,
            seq.num_preempted if seq else 0,
            is_refused=seq is None,
        )
