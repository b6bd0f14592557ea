"""On top of Reports: the newest one's finding."""

from typing import Final

from longpole_dashboard.model import text
from longpole_dashboard.model.reports import Reports
from longpole_dashboard.model.verdict_lines.base import MAX_SENTENCE, Line, name

_CAUSE: Final = "Biggest cause: "
_DO: Final = "Do first: "
"""How lines of a report begin."""


def of_reports(found: Reports) -> Line:
    """The newest report's finding and what to do first; why there is none to see."""
    if not found.reports:
        return Line(found.missing)
    newest = found.reports[0]
    lines = [name(line, MAX_SENTENCE) for line in newest.lines]
    head = name(newest.name)
    if newest.num_traces == 0 or not lines:
        why = "no request began in that time" if newest.num_traces == 0 else "it says nothing"
        return Line(f"{head}: no data: {why}.")
    cause = next((line for line in lines if line.startswith(_CAUSE)), "")
    is_found = cause and not cause.startswith(f"{_CAUSE}none")
    n = "" if newest.num_traces is None else f" ({text.counted(newest.num_traces, 'request')})"
    more = tuple(line for line in lines if line.startswith(_DO))[:1]
    return Line(f"{head}{n}: {cause if is_found else lines[0]}", more)
