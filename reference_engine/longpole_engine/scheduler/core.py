"""What the next step does: a pure function of what waits and what runs.

One budget of tokens a step, larger while nobody decodes; beside streams a prompt's token counts
for more the further it is in, so that all steps take about as long. Every running sequence that
has its prompt behind it takes one for its next token, and some for drafts; pieces of prompts share
what is left, those that run first, then those that wait, in the policy's order. Memory is planned
in whole pages: when the decoding rows do not fit, the sequence whose turn is last is put back in
line until they do. The one whose turn is first is never put back, so the engine always moves on.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from longpole_engine.config import Batching, Policy
from longpole_engine.kv.pool import PAGE_TOKENS, num_pages
from longpole_engine.scheduler.policies import POLICIES, Claim

ALONE_FACTOR: Final = 4
"""Prompts get so many times the budget while no stream would feel it: larger pieces run faster."""

FAR_TOKENS: Final = 2048
"""So far into a prompt a token takes twice the time of the first: attention is as much work as all
the rest. Measured on SmolLM2-135M; the operations alone would say 3,072."""


class Waiting(NamedTuple):
    """A request in line; ``num_tokens`` are to be computed, of which some are held already.

    ``num_cached`` are in the prefix cache, on ``num_idle`` pages without another owner; for a
    sequence kept aside, ``num_saved`` are in its saved pages. It will take ``num_seats`` seats.
    """

    id: str
    claim: Claim
    num_tokens: int
    num_cached: int = 0
    num_idle: int = 0
    num_saved: int = 0
    deadline_s: float | None = None
    num_seats: int = 1


class Running(NamedTuple):
    """A sequence with pages; it decodes when one known token is left and its prompt is done.

    ``num_own`` of its pages have no other owner. ``num_drafts`` tokens are proposed beyond the
    known ones. ``needs_copy``: its next token's page has other owners. ``is_prompt``: it has no
    token of its own yet, so even the last one left belongs to its prompt.
    """

    id: str
    claim: Claim
    num_tokens: int
    num_computed: int
    num_pages: int
    num_own: int
    num_drafts: int = 0
    needs_copy: bool = False
    is_prompt: bool = False
    num_seats: int = 1

    @property
    def is_decoding(self) -> bool:
        """Whether its next row is a decoding one."""
        return not self.is_prompt and self.num_tokens - self.num_computed == 1


class Limits(NamedTuple):
    """The engine's sizes and policies, as far as planning needs them."""

    max_num_seqs: int
    max_step_tokens: int
    policy: Policy = Policy.FCFS
    batching: Batching = Batching.CONTINUOUS
    is_chunked: bool = True


class State(NamedTuple):
    """All a plan depends on; ``num_available`` pages are free or cached without an owner."""

    now_s: float
    waiting: tuple[Waiting, ...]
    running: tuple[Running, ...]
    num_available: int
    limits: Limits


class Piece(NamedTuple):
    """Tokens of one sequence to compute in this step, from the first not computed on."""

    id: str
    num_tokens: int
    num_drafts: int = 0


class StepPlan(NamedTuple):
    """The step, in the order in which it happens; all parts empty when nothing is to do."""

    expire: tuple[str, ...] = ()
    preempt: tuple[str, ...] = ()
    admit: tuple[str, ...] = ()
    prefill: tuple[Piece, ...] = ()
    decode: tuple[Piece, ...] = ()


def plan(state: State) -> StepPlan:
    """The next step."""
    return _Planner(state).plan()


class _Planner:
    """One plan in the making."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._limits = state.limits
        self._budget = state.limits.max_step_tokens
        self._is_alone = not any(seq.is_decoding for seq in state.running)
        if self._is_alone:
            self._budget *= ALONE_FACTOR
        self._available = state.num_available
        self._due = POLICIES[state.limits.policy]
        self._running = sorted(state.running, key=self._rank)

    def plan(self) -> StepPlan:
        now_s = self._state.now_s
        expired = [w for w in self._state.waiting if w.deadline_s and w.deadline_s <= now_s]
        decode, preempted = self._decode()
        prefill = self._continue(preempted)
        admitted: list[str] = []
        if not preempted:
            gone = {w.id for w in expired}
            admitted, begun = self._admit([w for w in self._state.waiting if w.id not in gone])
            prefill += begun
        if self._is_stuck(decode, prefill, preempted, admitted):
            self._put_back(preempted)
        return StepPlan(
            tuple(w.id for w in expired),
            tuple(preempted),
            tuple(admitted),
            tuple(prefill),
            tuple(decode),
        )

    def _is_stuck(self, *done: Sequence[object]) -> bool:
        """Whether all who run wait for ones in line who find no room."""
        return bool(self._state.waiting and self._running) and not any(done)

    def _rank(self, one: Waiting | Running) -> tuple[float, float]:
        return self._due(one.claim, self._state.now_s), one.claim.arrived_s

    def _decode(self) -> tuple[list[Piece], list[str]]:
        """Rows of the sequences past their prompt, and who must make room for them."""
        decode: list[Piece] = []
        preempted: list[str] = []
        for seq in list(self._running):
            if not seq.is_decoding or seq.id in preempted:
                continue
            while self._cost(seq, 1) > self._available and self._running[-1] is not seq:
                self._put_back(preempted)
            if self._cost(seq, 1) > self._available:
                if len(self._running) > 1:  # it is the last in line itself
                    self._put_back(preempted)
                continue
            drafts = max(0, min(seq.num_drafts, self._budget - 1))
            while drafts and self._cost(seq, 1 + drafts) > self._available:
                drafts -= 1
            self._available -= self._cost(seq, 1 + drafts)
            self._budget -= 1 + drafts
            decode.append(Piece(seq.id, 1, drafts))
        return [piece for piece in decode if piece.id not in preempted], preempted

    def _put_back(self, preempted: list[str]) -> None:
        victim = self._running.pop()
        preempted.append(victim.id)
        self._available += victim.num_own

    def _cost(self, seq: Running, num_tokens: int) -> int:
        wanted = num_pages(seq.num_computed + num_tokens)
        return max(0, wanted - seq.num_pages) + seq.needs_copy

    def _continue(self, preempted: list[str]) -> list[Piece]:
        """Pieces of the prompts that are under way."""
        pieces = []
        for seq in list(self._running):
            left = seq.num_tokens - seq.num_computed
            if seq.is_decoding or left == 0 or seq.id in preempted:
                continue
            while self._fitting(seq) < 1 and self._running[-1] is not seq:
                self._put_back(preempted)
            size = min(self._piece(seq.num_computed, left), self._fitting(seq))
            if size > 0:
                self._available -= self._cost(seq, size)
                self._budget -= self._work(seq.num_computed, size)
                pieces.append(Piece(seq.id, size))
        return [piece for piece in pieces if piece.id not in preempted]

    def _fitting(self, seq: Running) -> int:
        room = (seq.num_pages + self._available - seq.needs_copy) * PAGE_TOKENS
        return room - seq.num_computed

    def _piece(self, start: int, left: int) -> int:
        """Tokens of a prompt from ``start`` on for which the budget has room, at least one."""
        if self._budget <= 0:
            return 0
        if not self._limits.is_chunked:
            return left
        if self._is_alone:
            return min(left, self._budget)
        base = FAR_TOKENS + start  # the number whose work would be the budget and one more
        above = math.sqrt(base**2 + 2 * FAR_TOKENS * (self._budget + 1)) - base
        return min(left, max(1, math.ceil(above) - 1))

    def _work(self, start: int, num_tokens: int) -> int:
        """What such tokens take of the budget."""
        if self._is_alone:
            return num_tokens
        return int(num_tokens * (1 + (start + num_tokens / 2) / FAR_TOKENS))

    def _admit(self, waiting: list[Waiting]) -> tuple[list[str], list[Piece]]:
        """Who comes in: strictly in order, so a large request is not passed for ever.

        Room is asked for the whole prompt and, beside others, for a page more for each: who comes
        in should not be put out at once.
        """
        admitted: list[str] = []
        pieces: list[Piece] = []
        num_running = sum(seq.num_seats for seq in self._running)
        if self._limits.batching is Batching.STATIC and num_running:
            return admitted, pieces
        for one in sorted(waiting, key=self._rank):
            is_out_of_budget = self._budget <= 0 and self._limits.batching is Batching.CONTINUOUS
            if num_running + one.num_seats > self._limits.max_num_seqs or is_out_of_budget:
                break
            held = one.num_saved or one.num_cached
            need = num_pages(one.num_tokens) - one.num_cached // PAGE_TOKENS
            reserve = num_running + 1 if num_running else 0
            if need + one.num_idle + reserve > self._available:
                break
            self._available -= need + one.num_idle
            num_running += one.num_seats
            admitted.append(one.id)
            left = one.num_tokens - held
            if one.num_saved and left == 1:
                continue  # it decodes from the next step on
            size = self._piece(held, left)
            self._budget -= self._work(held, size)
            if size:
                pieces.append(Piece(one.id, size))
        return admitted, pieces
