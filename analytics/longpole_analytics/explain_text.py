"""The account of one trace as text for people: what ``longpole explain`` shows."""

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from longpole.vocab import STAGE_COLOURS, Stage
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.explain import WHAT_IF_FASTER_BY, best_savings, opaque_share
from longpole_analytics.serial import Opportunity
from longpole_analytics.stages import TracePartition
from longpole_analytics.whatif import drags, slack
from longpole_analytics.wording import milliseconds, percent, printable

MAX_PATH_ROWS: Final = 40
MAX_OPPORTUNITIES: Final = 3
BAR_WIDTH: Final = 24
_EVIDENCE: Final = {
    "E3": "one answer asked for all of them",
    "E2": "{} other traces have them overlap or the other way round",
    "E1": "nothing is known of who needs whom",
}


def show(
    console: Console,
    split: TracePartition,
    outcome: str | None,
    *,
    shape: dict[str, Any] | None = None,
    serial: Sequence[Opportunity] = (),
) -> None:
    """Print the account: stages, path, long pole, shape, what-ifs, opportunities, doubts.

    Args:
        console: where to.
        split: the trace.
        outcome: what its workflow says; ``None`` is unknown.
        shape: name, evidence and next check; ``None`` where there is nothing to compare with.
        serial: work that might run in parallel.
    """

    def say(text: str) -> None:
        console.print(printable(text), markup=False)

    say(f"trace {split.trace_id}   wall {_ms(split.wall_ns)}   outcome {outcome or 'unknown'}")
    if split.extended_wall_ns > split.wall_ns:
        say(f"until the end of the stream {_ms(split.extended_wall_ns)}")
    if not split.stages:
        say("no finished span with a duration: nothing to split")
    else:
        console.print(_stage_table(split))
        console.print(_path_table(split))
        for line in _advice(split, shape, serial):
            say(line)
    for clock, shift in split.shifts_ns.items():
        say(f"clock of {clock} moved by {_ms(shift)}")
    if split.flags:
        counts = ((flag, split.tree.marks.get(flag, 1)) for flag in split.flags)
        say(f"doubts      {', '.join(f'{f} ({n})' if n > 1 else f for f, n in counts)}")


def _advice(
    split: TracePartition, shape: dict[str, Any] | None, serial: Sequence[Opportunity]
) -> list[str]:
    pole = split.long_pole
    part = percent(split.critical_ns(pole) / split.wall_ns) if split.wall_ns else "unknown"
    lines = [f"long pole   {pole.value}: {_ms(split.critical_ns(pole))}, {part}"]
    opaque = opaque_share(split)
    if opaque:
        lines.append(f"opaque      {percent(opaque)} of the time to first content is unexplained")
    if shape is not None:
        cause = f": {shape['sub_cause']}" if shape["sub_cause"] else ""
        lines.append(f"shape       {shape['name'] or 'unknown'}{cause}")
    is_told = shape is not None and shape["name"] is not None and shape["next_check"]
    lines.append(f"next check  {shape['next_check'] if shape and is_told else NEXT_CHECK[pole]}")
    lines += [
        f"what if     {stage.value} took {percent(WHAT_IF_FASTER_BY)} less: -{_ms(saved)}"
        for stage, saved in best_savings(split)
    ]
    lines += [_opportunity(one) for one in serial[:MAX_OPPORTUNITIES]]
    if len(serial) > MAX_OPPORTUNITIES:
        lines.append(f"            and {len(serial) - MAX_OPPORTUNITIES} smaller ones")
    return lines


def _opportunity(one: Opportunity) -> str:
    risk = f"; all call {one.rate_limit}: mind its rate limit" if one.rate_limit else ""
    why = _EVIDENCE[one.evidence].format(one.num_traces_apart)
    return (
        f"in parallel {' | '.join(one.names)}: -{_ms(one.saved_ns)} (at most "
        f"{_ms(one.bound_ns)}), {one.evidence}: {why}; ran at {one.parallelism:.1f}x{risk}"
    )


def _stage_table(split: TracePartition) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    table.add_column("")
    for name in ("on the path", "share", "in all"):
        table.add_column(name, justify="right")
    for stage, time in sorted(split.stages.items(), key=lambda item: -item[1].critical_ns):
        share = time.critical_ns / split.wall_ns if split.wall_ns else None
        bar = Text("█" * round((share or 0) * BAR_WIDTH), style=STAGE_COLOURS[stage])
        shown = "" if share is None else percent(share)
        table.add_row(stage.value, bar, _ms(time.critical_ns), shown, _ms(time.total_ns))
    return table


def _path_table(split: TracePartition) -> Table:
    """The path, earliest first; of a long one the longest segments only.

    Drag is what would be saved if that span's own time were gone, slack how much longer it could
    take unnoticed: 0 on the path, unless an equal branch runs beside it.
    """
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("from", "to"):
        table.add_column(name, justify="right")
    table.add_column("critical path")
    table.add_column("stage")
    for name in ("drag", "slack"):
        table.add_column(name, justify="right")
    longest = sorted(split.segments, key=lambda segment: segment.start_ns - segment.end_ns)
    shown = sorted(longest[:MAX_PATH_ROWS], key=lambda segment: segment.start_ns)
    dragged = drags(split.tree, [segment.span_id for segment in shown])
    slacks = slack(split.tree)
    for segment in shown:
        table.add_row(
            _ms(segment.start_ns - split.start_ns),
            _ms(segment.end_ns - split.start_ns),
            Text(printable(segment.name)),
            Text(segment.stage.value, style=STAGE_COLOURS[Stage(segment.stage)]),
            _ms(dragged[segment.span_id]),
            _ms(slacks[segment.span_id]) if segment.span_id in slacks else "",
        )
    if len(longest) > MAX_PATH_ROWS:
        table.add_row("", "", f"and {len(longest) - MAX_PATH_ROWS} shorter ones", "", "", "")
    return table


def _ms(nanoseconds: float) -> str:
    return milliseconds(nanoseconds / 1e6)
