"""On top of Explore: what the selection shares, and where it loses its time."""

from collections.abc import Sequence
from typing import Final

from longpole_dashboard.model import text
from longpole_dashboard.model.explore import Brushed, Difference, Extra, Picked
from longpole_dashboard.model.verdict_lines.base import Line, name
from longpole_dashboard.theme import look

_LISTED: Final = "They are listed below."
_NEXT: Final = "Next: open the slowest of them below."


def of_selection(picked: Picked, found: Brushed | None, split: str | None = None) -> Line:
    """What the workflows in a box share, and in which stage they lose their time.

    Args:
        picked: how many there are.
        found: what they were compared by; ``None`` where they are too few for it.
        split: the dimension that was compared alone; ``None`` for all.
    """
    if found is None:
        workflows = text.counted(picked.num, "workflow")
        return Line(f"{workflows} in the box: under 30 say nothing in per cent.", (_LISTED,))
    if found.reason:
        return Line(f"No comparison: {found.reason}.", (_LISTED,))
    n = f"{text.count(found.num_selected)} selected"
    if found.num_selected != picked.num:
        n = f"{text.count(found.num_selected)} read of {text.count(picked.num)} selected"
    first = next((each for each in found.differences if each.is_decided), None)
    told = f"the {n}, which take {_extra(found.extra, found.extra_ms)}"
    if first is None:
        what = f"value of {name(split)}" if split else "slice"
        rest = text.count(found.num_rest)
        return Line(f"No {what} surely tells {told}, from the {rest} others.", (_NEXT,))
    return Line(
        f"{_risk(first)} to be among {told}.",
        (f"An association, no proof. {_NEXT}",),
    )


def _risk(each: Difference) -> str:
    """``prompt_version=v2 is 7.7x as likely (3.1 to 19)``, as beside the page's bars."""
    ratio, low, high = (
        text.significant(x or 0.0, 2) for x in (each.risk_ratio, each.low, each.high)
    )
    return f"{name(each.text)} is {ratio}x as likely ({low} to {high})"


def _extra(stages: Sequence[Extra], extra_ms: float) -> str:
    top = max(stages, key=lambda each: each.mean_ms, default=None)
    if extra_ms <= 0 or top is None:
        sign = "-" if extra_ms < 0 else "+"
        return f"no longer than like ones ({sign}{text.duration(abs(extra_ms))} on average)"
    whole, part = (text.duration(ms) for ms in (extra_ms, top.mean_ms))
    stage = look(top.stage).label
    if top.mean_ms > extra_ms:  # others take less
        return f"{whole} more on average, {part} more in {stage}"
    return f"{whole} more on average, {part} of it in {stage}"
