"""The books of the scheduler: sequences, their tokens and pages, and plans put into effect.

No tensors and no text: the engine runs a model on what a step says, the simulator adds up time.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from longpole_engine.config import Preemption
from longpole_engine.kv.manager import Hit, KvManager, Saved
from longpole_engine.scheduler.core import (
    Limits,
    Piece,
    Running,
    State,
    StepPlan,
    Waiting,
    plan,
)
from longpole_engine.scheduler.policies import Claim


@dataclass(eq=False)
class Sequence:
    """One answer in the making.

    ``tokens`` are the prompt's and the answer's so far; the first ``num_computed`` have keys and
    values. ``max_tokens`` bounds both together. ``drafts`` are proposed continuations, not yet
    part of ``tokens``; the draft model's own keys and values reach to ``num_draft_computed``.
    ``num_seats`` counts the sequences that will run beside it once its prompt is done, itself
    included. Times are seconds on the caller's clock.
    """

    id: str
    tokens: list[int]
    max_tokens: int
    arrived_s: float = 0.0
    priority: int = 0
    slo_s: float | None = None
    deadline_s: float | None = None
    salt: str = ""
    session: str | None = None
    drafts: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_cached: int | None = None
    num_preempted: int = 0
    saved: Saved | None = None
    num_seats: int = 1
    num_draft_computed: int = 0
    num_prompt: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt = len(self.tokens)

    @property
    def num_left(self) -> int:
        """Known tokens without keys and values."""
        return len(self.tokens) - self.num_computed


class Step(NamedTuple):
    """A plan in effect: ids resolved, pages in place."""

    plan: StepPlan
    expired: list[Sequence]
    preempted: list[Sequence]
    admitted: list[Sequence]
    prefill: list[tuple[Sequence, Piece]]
    decode: list[tuple[Sequence, Piece]]

    @property
    def is_empty(self) -> bool:
        """Nothing happened and nothing is to be computed."""
        return not any(self.plan)


class Ledger:
    """Who waits, who runs, on which pages.

    Args:
        kv: the page tables.
        limits: sizes and policies.
        preemption: what becomes of the pages of a sequence put back in line.
        seconds_per_token: expected time of a prompt's token, for deadlines; the caller may keep
            it up to date.
    """

    def __init__(
        self,
        kv: KvManager,
        limits: Limits,
        preemption: Preemption = Preemption.RECOMPUTE,
        seconds_per_token: float = 0.003,
    ) -> None:
        self.kv = kv
        self.limits = limits
        self.seconds_per_token = seconds_per_token
        self.waiting: dict[str, Sequence] = {}
        self.running: dict[str, Sequence] = {}
        self._preemption = preemption

    def add(self, seq: Sequence) -> None:
        """A request joins the line."""
        self.waiting[seq.id] = seq

    def fork(self, parent: str, child: Sequence) -> None:
        """A sequence beside a running one, on the same pages, as far as they are computed."""
        source = self.running[parent]
        child.num_computed = min(source.num_computed, len(child.tokens) - 1)
        child.num_cached = source.num_cached
        child.num_draft_computed = source.num_draft_computed
        self.kv.fork(parent, child.id)
        self.kv.trim(child.id, child.num_computed)
        self.running[child.id] = child

    def remove(self, name: str) -> Sequence | None:
        """A sequence is done or given up; its pages are free. ``None`` if nobody has the name."""
        self.kv.close(name)
        return self.waiting.pop(name, None) or self.running.pop(name, None)

    def state(self, now_s: float) -> State:
        """What a plan depends on, at this moment."""
        has_seat = len(self.running) < self.limits.max_num_seqs
        return State(
            now_s,
            tuple(self._in_line(seq, has_seat=has_seat) for seq in self.waiting.values()),
            tuple(self._under_way(seq) for seq in self.running.values()),
            self.kv.pool.num_available,
            self.limits,
        )

    def step(self, now_s: float) -> Step:
        """Plan the next step and put it into effect."""
        if not (self.waiting or self.running):
            return Step(StepPlan(), [], [], [], [], [])
        todo = plan(self.state(now_s))
        expired = [self.waiting.pop(name) for name in todo.expire]
        preempted = [self._put_back(self.running.pop(name)) for name in todo.preempt]
        admitted = [self._let_in(self.waiting.pop(name)) for name in todo.admit]
        for piece in (*todo.prefill, *todo.decode):
            start = self.running[piece.id].num_computed
            self.kv.grow(piece.id, start, start + piece.num_tokens + piece.num_drafts)
        return Step(
            todo,
            expired,
            preempted,
            admitted,
            [(self.running[piece.id], piece) for piece in todo.prefill],
            [(self.running[piece.id], piece) for piece in todo.decode],
        )

    def computed(self, seq: Sequence, num_tokens: int) -> None:
        """Tokens of a running sequence have got their keys and values."""
        seq.num_computed += num_tokens
        self.kv.commit(seq.id, seq.tokens, seq.num_computed)

    def checked(self, seq: Sequence, num_accepted: int) -> None:
        """Drafts have been checked: those accepted are tokens now, the others' room is given back.

        Args:
            seq: running, its newest tokens the accepted drafts and one more, without keys.
            num_accepted: how many were accepted.
        """
        seq.drafts = []
        self.computed(seq, num_accepted)
        self.kv.trim(seq.id, seq.num_computed)

    def _in_line(self, seq: Sequence, *, has_seat: bool) -> Waiting:
        hit = Hit(0, 0)
        num_saved = seq.num_computed if seq.saved is not None else 0
        if has_seat and not num_saved:
            hit = self.kv.lookup(seq.tokens, seq.salt)
        num_left = len(seq.tokens) - max(hit.num_tokens, num_saved)
        claim = self._claim(seq, num_left)
        deadline_s = seq.deadline_s if seq.num_cached is None else None  # it has begun: it ends
        return Waiting(seq.id, claim, len(seq.tokens), *hit, num_saved, deadline_s, seq.num_seats)

    def _under_way(self, seq: Sequence) -> Running:
        return Running(
            seq.id,
            self._claim(seq, seq.num_left),
            len(seq.tokens),
            seq.num_computed,
            len(self.kv.pages(seq.id)),
            self.kv.num_own(seq.id),
            min(len(seq.drafts), seq.max_tokens - len(seq.tokens)),
            self.kv.is_tail_shared(seq.id, seq.num_computed),
            len(seq.tokens) == seq.num_prompt,
            seq.num_seats,
        )

    def _claim(self, seq: Sequence, num_left: int) -> Claim:
        return Claim(
            seq.arrived_s, seq.priority, num_left, num_left * self.seconds_per_token, seq.slo_s
        )

    def _put_back(self, seq: Sequence) -> Sequence:
        # one that waits for others has rows to compute again: they went with its place
        if self._preemption is Preemption.SWAP and seq.num_computed and seq.num_left:
            self.kv.trim(seq.id, seq.num_computed)
            seq.saved = self.kv.save(seq.id)
        else:
            self.kv.close(seq.id)
            seq.num_computed = 0
        seq.drafts = []
        seq.num_preempted += 1
        self.waiting[seq.id] = seq
        return seq

    def _let_in(self, seq: Sequence) -> Sequence:
        if seq.saved is not None:
            self.kv.load(seq.id, seq.saved)
            seq.saved = None
        else:
            seq.num_computed = self.kv.open(
                seq.id,
                seq.tokens,
                salt=seq.salt,
                session=seq.session,
                max_tokens=seq.max_tokens,
            )
            if seq.num_cached is None:
                seq.num_cached = seq.num_computed
        self.running[seq.id] = seq
        return seq
