"""Error budgets must have something left, and no rule may fire."""

from longpole_analytics.gates.base import Data, Finding, Gate, Options, Status
from longpole_analytics.measures import share
from longpole_analytics.slo.check import Standing, document
from longpole_analytics.wording import percent


def _run(options: Options, data: Data) -> Finding:
    standings = data.standings(options["slos"])
    told = [(each, *_judged(each, options["min_left"])) for each in standings]
    failed = [(each, sure) for each, status, sure in told if status == "fail"]
    open_ones = [each for each, status, _ in told if status == "undecided"]
    details = {"slos": document(standings, 0)["slos"], "min_left": options["min_left"]}
    n = min((int(each.total) for each, _, _ in told), default=0)
    if failed:
        n = min(int(each.total) for each, _ in failed)
        text = "; ".join(_text(each) for each, _ in failed)
        return Finding("fail", text, n, any(sure for _, sure in failed), details=details)
    if open_ones:
        text = f"too few events: {', '.join(each.objective.id for each in open_ones)}"
        return Finding("undecided", text, n, details=details)
    return Finding("pass", "; ".join(_text(each) for each in standings), n, details=details)


def _judged(standing: Standing, min_left: float) -> tuple[Status, bool]:
    """The status of one objective, and whether the interval of its bad share leaves no doubt."""
    left, objective = standing.budget.remaining, standing.objective
    allowed = objective.budget * (1 - min_left)
    bad = share(standing.num_bad, round(standing.total))
    is_certain = bad.low is not None and bad.low > allowed and standing.num_bad >= objective.min_bad
    if standing.is_breached:
        return "fail", is_certain
    if left is None or standing.is_thin:
        return "undecided", False
    if left < min_left:
        return (
            ("fail", is_certain) if standing.num_bad >= objective.min_bad else ("undecided", False)
        )
    return "pass", False


def _text(standing: Standing) -> str:
    left = standing.budget.remaining
    said = "no events" if left is None else f"{percent(left)} of the budget left"
    fires = ", a rule fires" if standing.status == "firing" else ""
    floors = [each.floor.metric for each in standing.floors if each.status == "missed"]
    missed = f", floor missed: {', '.join(floors)}" if floors else ""
    return f"{standing.objective.id}: {said}{fires}{missed}"


GATE = Gate({"slos": [], "min_left": 0.0}, _run)
