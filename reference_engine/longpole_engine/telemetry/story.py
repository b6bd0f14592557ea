"""The story of one request: what it did in each step, beside whom, and who delayed it.

Made from its stages and the log of steps after it is done, off the step's thread. The moments tile
the time from door to closed response exactly. Time in which others were served is charged to them
by the tokens they computed in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from longpole.vocab import Stage
from longpole_engine.scheduler.core import Piece
from longpole_engine.telemetry.events import Phase, RequestRecord
from longpole_engine.telemetry.steps import Part, StepFact, StepLog

_IN_STEPS: Final = (Stage.QUEUE, Stage.PREFILL, Stage.FIRST_DECODE, Stage.LATER_DECODE)
_CAUSE: Final = "kv_pages"
"""The planner puts a sequence back for one reason: the pages did not suffice for all."""


class Moment(NamedTuple):
    """A piece of a request's time.

    ``what`` is a stage's name, a part of a step that served the request, or ``wait_prefill``,
    ``wait_decode``, ``wait_queue`` for one that served the others: ``mates``, each with its tokens.
    """

    stage: Stage
    what: str
    start_ns: int
    end_ns: int
    step: int | None = None
    num_tokens: int = 0
    num_drafts: int = 0
    mates: tuple[tuple[str, int], ...] = ()


class Preempted(NamedTuple):
    """The request was put back in line, so that others could go on; ``lost_ns`` until it ran on."""

    step: int
    at_ns: int
    cause: str
    made_room_for: tuple[str, ...]
    lost_ns: int


class Story(NamedTuple):
    """All moments in order; ``delayed_by`` is nanoseconds by request, the longest first."""

    moments: list[Moment]
    preempted: list[Preempted]
    delayed_by: dict[str, int]
    stall_ns: int


def tell(name: str, record: RequestRecord, log: StepLog) -> Story:
    """The story of a closed request; without moments while it is not closed.

    Args:
        name: the request's id in the plans.
        record: its stages.
        log: the engine's steps.
    """
    phases = record.timeline.phases()
    moments: list[Moment] = []
    steps: Sequence[StepFact] = ()
    if phases:
        steps = log.between(phases[0].start_ns, phases[-1].end_ns)
    for phase in phases:
        moments += _fill(phase, name, steps) if phase.stage in _IN_STEPS else [_whole(phase)]
    return Story(moments, _preempted(name, phases, steps), _charged(moments), record.stall_ns)


def delays(name: str, record: RequestRecord, log: StepLog) -> dict[str, int]:
    """Who delayed a closed request: the story's ``delayed_by``, without the story.

    Cheap enough to be told of every request: only steps that served others alone are looked at.
    """
    phases = record.timeline.phases()
    if not phases:
        return {}
    steps = [
        step
        for step in log.between(phases[0].start_ns, phases[-1].end_ns)
        if _may_wait(name, step.plan.prefill) or _may_wait(name, step.plan.decode)
    ]
    inside = (phase for phase in phases if steps and phase.stage in _IN_STEPS)
    return _charged(moment for phase in inside for moment in _fill(phase, name, steps))


def _may_wait(name: str, pieces: Sequence[Piece]) -> bool:
    return bool(pieces) and all(piece.id != name for piece in pieces)


def document(name: str, story: Story) -> dict[str, Any]:
    """The story as JSON; times in milliseconds from its start."""
    start_ns = story.moments[0].start_ns if story.moments else 0

    def ms(nanoseconds: int) -> float:
        return round(nanoseconds / 1e6, 6)

    return {
        "schema": "longpole.engine.timeline/1",
        "id": name,
        "wall_ms": ms(story.moments[-1].end_ns - start_ns) if story.moments else None,
        "client_stall_ms": ms(story.stall_ns),
        "moments": [
            {
                "stage": moment.stage.value,
                "what": moment.what,
                "start_ms": ms(moment.start_ns - start_ns),
                "ms": ms(moment.end_ns - moment.start_ns),
                "step": moment.step,
                "tokens": moment.num_tokens,
                "drafts": moment.num_drafts,
                "mates": dict(moment.mates),
            }
            for moment in story.moments
        ],
        "preempted": [
            {
                "step": one.step,
                "at_ms": ms(one.at_ns - start_ns),
                "cause": one.cause,
                "made_room_for": list(one.made_room_for),
                "lost_ms": ms(one.lost_ns),
            }
            for one in story.preempted
        ],
        "delayed_by_ms": {other: ms(spent) for other, spent in story.delayed_by.items()},
    }


def _whole(phase: Phase) -> Moment:
    return Moment(phase.stage, phase.stage.value, phase.start_ns, phase.end_ns)


def _fill(phase: Phase, name: str, steps: Sequence[StepFact]) -> Iterator[Moment]:
    """The phase, cut where parts of steps end; what no step covers is between steps."""
    at = phase.start_ns
    for step in steps:
        if step.end_ns <= at or step.start_ns >= phase.end_ns:
            continue
        if step.start_ns > at:
            yield Moment(phase.stage, "between_steps", at, step.start_ns)
            at = step.start_ns
        section = Part.PLAN
        for part, end_ns in step.marks:
            if part in (Part.PREFILL, Part.DECODE):
                section = part
            end = min(end_ns, phase.end_ns)
            if end > at:
                yield _moment(phase.stage, name, step, part, section, at, end)
                at = end
    if at < phase.end_ns or phase.start_ns == phase.end_ns:
        yield Moment(phase.stage, "between_steps", at, phase.end_ns)


def _moment(
    stage: Stage, name: str, step: StepFact, part: Part, section: Part, start_ns: int, end_ns: int
) -> Moment:
    """One part of one step, as the request lived it."""
    if section is Part.PLAN:
        what = "cache_lookup" if name in step.plan.admit else "plan"
        return Moment(stage, what, start_ns, end_ns, step.id)
    pieces: tuple[Piece, ...] = step.plan.prefill
    if section is Part.DECODE:
        pieces = step.plan.decode
    mates = tuple((piece.id, piece.num_tokens) for piece in pieces if piece.id != name)
    own = next((piece for piece in pieces if piece.id == name), None)
    if own is None:
        what = "wait_queue" if stage is Stage.QUEUE else f"wait_{section.value}"
        return Moment(stage, what, start_ns, end_ns, step.id, mates=mates)
    what = part.value
    if part is Part.PREFILL:
        what = "prefill_chunk"
    elif part is Part.SAMPLE and own.num_drafts:
        what = "verify"
    return Moment(stage, what, start_ns, end_ns, step.id, own.num_tokens, own.num_drafts, mates)


def _charged(moments: Iterable[Moment]) -> dict[str, int]:
    """Nanoseconds of waiting by the request that was served, the longest first."""
    delayed: dict[str, int] = {}
    for moment in moments:
        if moment.what.startswith("wait_"):
            _charge(moment, delayed)
    return dict(sorted(delayed.items(), key=lambda item: -item[1]))


def _charge(moment: Moment, delayed: dict[str, int]) -> None:
    """Divide a wait among those served, to the nanosecond."""
    left_ns, left = moment.end_ns - moment.start_ns, sum(num for _, num in moment.mates)
    for other, num in moment.mates:
        part_ns = left_ns * num // left if left else 0
        delayed[other] = delayed.get(other, 0) + part_ns
        left_ns, left = left_ns - part_ns, left - num


def _preempted(name: str, phases: Sequence[Phase], steps: Sequence[StepFact]) -> list[Preempted]:
    found = []
    returns = [phase for phase in phases if phase.stage is Stage.LATER_DECODE]
    for step in steps:
        if name not in step.plan.preempt:
            continue
        back = next((p.start_ns for p in returns if p.start_ns > step.start_ns), None)
        end_ns = phases[-1].end_ns if back is None else back
        kept = tuple(piece.id for piece in (*step.plan.decode, *step.plan.prefill))
        found.append(Preempted(step.id, step.start_ns, _CAUSE, kept, end_ns - step.start_ns))
    return found
