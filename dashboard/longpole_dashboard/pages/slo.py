"""SLOs: what is promised, what is left of each error budget, and how it burned."""

import time
from collections.abc import Sequence
from typing import Final

import streamlit as st

from longpole_analytics.alerts.event import burning, route_of
from longpole_analytics.minutes import MINUTE_NS
from longpole_analytics.slo.burn import DAY_MIN
from longpole_analytics.slo.check import Standing, time_text
from longpole_analytics.slo.floors import promise_of
from longpole_analytics.slo.objectives import Objective, span
from longpole_dashboard import data, places, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.figures import slo as figures
from longpole_dashboard.model import alerts, slo, text
from longpole_dashboard.model.alerts import Alert, Alerts
from longpole_dashboard.model.clock import iso
from longpole_dashboard.model.slo import Detail, Slos
from longpole_dashboard.model.slo_counting import LOOK_S
from longpole_dashboard.model.window import Bounds, Filters
from longpole_dashboard.pages.base import Page
from longpole_dashboard.widgets import Selection

PARAM: Final = "slo"
MAX_ALERTS: Final = 50
_DRAWN: Final = "longpole_slos_drawn_s"
_EXAMPLE: Final = """\
[slo.rag-ttft]
metric = "ttft_ms"
threshold = 2000
target = 0.99
period = "30d"
where = "route = 'rag.search'"
owner = "search\""""
_CHART: Final = {"displayModeBar": False}


def draw(selected: Selection, held: Bounds) -> None:
    """All objectives by the budget that is left, or the one that the address names."""
    st.title("SLOs")
    objectives = slo.about(slo.configured(), selected.route)
    if not objectives:
        _how_to_begin(selected)
        return
    asked = st.query_params.get(PARAM)
    if asked is not None and asked in {each.id for each in objectives}:
        st.fragment(_detail, run_every=selected.refresh_s)(selected, objectives, asked)
        return
    if asked is not None:
        of = "of this route " if selected.route else ""
        widgets.note(f"There is no objective '{asked}' {of}in longpole.toml: these are all.")
    st.fragment(_all, run_every=selected.refresh_s)(selected, objectives)


def _how_to_begin(selected: Selection) -> None:
    if selected.route:
        widgets.note(f"No objective is about the route {selected.route}: choose all routes.")
        return
    widgets.note(
        "No objective is written.",
        "grey",
        "Put one into longpole.toml, in the folder that the dashboard is started from or above.",
    )
    st.code(_EXAMPLE, language="toml")
    widgets.reproduce("longpole slo validate")


def _all(selected: Selection, objectives: tuple[Objective, ...]) -> None:
    filters = data.filters(selected)
    found = data.ask(slo.slos, objectives, filters)
    told = data.ask(alerts.alerts, places.folder(selected))
    _as_of(found, selected, objectives)
    for name, why in found.broken:
        widgets.note(
            f"{name} cannot be judged: {why}", "worse", "Mend its condition in longpole.toml."
        )
    firing = {each.slo: each for each in reversed(told.alerts) if each.ended_ns is None}
    rows = [
        Row(_cells(each, firing.get(each.objective.id), found), each.objective.id, _href(each))
        for each in found.standings
    ]
    opened = table("objectives", _COLUMNS, rows)
    if len(objectives) == slo.MAX_OBJECTIVES:
        widgets.muted(f"At most {slo.MAX_OBJECTIVES} objectives are shown, the first of the file.")
    widgets.muted(
        "Least budget first. A window without requests has no burn rate, and a promise that too "
        "few requests tell of has no share."
    )
    _command(filters)
    _alert_table("Alerts", told, told.alerts, selected)
    if opened is not None:
        widgets.go("slo", slo=opened)


_COLUMNS: Final = (
    Column("objective"),
    Column("status"),
    Column("budget left", is_number=True),
    Column("burn, long / short", is_number=True),
    Column("good", is_number=True),
    Column("bad of all", is_number=True),
    Column("used up at"),
    Column("promise"),
    Column("owner"),
)


def _cells(each: Standing, alert: Alert | None, found: Slos) -> tuple[Cell, ...]:
    objective = each.objective
    return (
        Cell(objective.id),
        _status(each, alert),
        _left(each, found),
        _rates(each),
        Cell(*_good(each)),
        Cell(f"{round(each.bad):,} of {round(each.total):,}"),
        Cell(_until(each), muted=_reason(each)),
        Cell(objective.text, muted=route_of(objective) or objective.where or "all requests"),
        Cell(objective.owner or text.UNKNOWN),
    )


def _status(each: Standing, alert: Alert | None) -> Cell:
    if alert is not None and alert.state != "firing":
        return Cell(f"firing, {alert.state}", colour="#e15759")
    if each.status == "firing":
        severity = next(r.rule.severity for r in each.rules if r.status == "firing")
        return Cell(f"{severity} firing", colour="#e15759")
    if each.is_breached:
        missed = [f.floor.metric for f in each.floors if f.status == "missed"]
        what = f"floor missed: {', '.join(missed)}" if missed else "budget used up"
        return Cell(what, colour="#e15759", is_hatched=True)
    if each.status == "no_data":
        return Cell("no data", colour="#9aa0a6", is_hatched=True)
    if each.is_thin or not slo.is_enough(each):
        return Cell("not enough events", colour="#9aa0a6")
    return Cell(each.status if each.status != "inactive" else "kept", colour="#59a14f")


def _good(each: Standing) -> tuple[str, str]:
    """The share of good requests, never rounded up to all of them."""
    if not each.total:
        return text.UNKNOWN, "no data"
    if not slo.is_enough(each):
        return text.UNKNOWN, "not enough events"
    share = 100 * (1 - each.bad / each.total)
    said = f"{share:.4g}"
    return (f"{said} %" if said != "100" or not each.bad else "> 99.99 %"), ""


def _left(each: Standing, found: Slos) -> Cell:
    remaining = each.budget.remaining
    if remaining is None:
        return Cell(text.UNKNOWN, muted="no data")
    if not slo.is_enough(each):
        return Cell(text.UNKNOWN, muted="not enough events")
    told = text.percent(remaining, 0)
    muted = "so far" if found.num_uncounted else ""
    return Cell(told, muted=muted, bar_ratio=min(max(remaining, 0.0), 1.0))


def _rates(each: Standing) -> Cell:
    if not each.rules:
        return Cell(text.UNKNOWN)
    severities = {rule.rule.severity for rule in each.rules}
    rule = max(
        (burning(each, severity) for severity in sorted(severities)),
        key=lambda one: (
            one.status == "firing",
            one.rule.severity == "page",
            (one.burn_long or 0.0) / one.factor_used,
        ),
    )
    long, short = (rule.burn_long, rule.burn_short)
    return Cell(
        f"{_rate(long)} / {_rate(short)}",
        muted=f"{span(rule.rule.long_min)} / {span(rule.rule.short_min)}",
    )


def _rate(burn: float | None) -> str:
    return text.UNKNOWN if burn is None else f"{text.significant(burn)}x"


def _until(each: Standing) -> str:
    return (time_text(each.budget.exhausted_at) or text.UNKNOWN).replace("T", " ").rstrip("Z")


def _reason(each: Standing) -> str:
    return "UTC" if each.budget.exhausted_at is not None else each.budget.reason


def _href(each: Standing) -> str:
    return f"slo?slo={each.objective.id}"


# --- one objective ------------------------------------------------------------------------------
def _detail(selected: Selection, objectives: tuple[Objective, ...], asked: str) -> None:
    filters = data.filters(selected)
    whole = data.ask(slo.slos, objectives, filters)
    broken = dict(whole.broken).get(asked)
    back, explain = st.columns([5, 1], vertical_alignment="center")
    if back.button("All objectives", icon=":material/arrow_back:", type="tertiary"):
        widgets.go("slo")
    if broken is not None:
        widgets.note(
            f"{asked} cannot be judged: {broken}", "worse", "Mend its condition in longpole.toml."
        )
        return
    shown = data.ask(slo.detail, objectives, asked, filters)
    told = data.ask(alerts.alerts, places.folder(selected))
    own = [each for each in told.alerts if promise_of(each.slo) == asked]
    st.subheader(f"{text.markdown(asked)}: {text.markdown(shown.standing.objective.text)}")
    _as_of(whole, selected, objectives)
    _facts(shown, own)
    found = slo.explained(shown, whole.at_ns)
    only = None if found.is_whole else "Explore cannot take all of its condition"
    if explain.button("Explain this burn", icon=":material/search:", help=only):
        widgets.go("explore", **found.params)
    _charts(shown, own, selected)
    _floors(shown)
    _command(filters)
    _alert_table("Alerts of this objective", told, own, selected)


def _facts(shown: Detail, own: Sequence[Alert]) -> None:
    each = shown.standing
    good, why = _good(each)
    left = each.budget
    is_known = left.remaining is not None and slo.is_enough(each)
    rates = {span(rule.rule.long_min): _rate(rule.burn_long) for rule in each.rules}
    rates.setdefault(span(DAY_MIN), _rate(left.burn_24h))
    name = each.objective.id
    firing = [alert for alert in own if alert.ended_ns is None and alert.slo == name]
    pairs = [
        ("budget left", text.percent(left.remaining, 0) if is_known else why or text.UNKNOWN),
        ("good", good if not why else f"{good} ({why})"),
        ("bad of all", f"{round(each.bad):,} of {round(each.total):,}"),
        *((f"burn {window}", rate) for window, rate in rates.items()),
        ("used up at, UTC", _until(each) if left.exhausted_at else left.reason or text.UNKNOWN),
        ("status", _status(each, firing[0] if firing else None).text),
    ]
    widgets.facts(pairs)
    notes = []
    if each.num_left_out:
        told = text.counted(each.num_left_out, "request")
        notes.append(f"{told} say nothing about it: they do not have the metric")
    if each.objective.owner:
        notes.append(f"owner {each.objective.owner}")
    if each.objective.runbook:
        notes.append(f"runbook {each.objective.runbook}")
    if each.objective.description:
        notes.append(each.objective.description)
    if notes:
        widgets.muted(" · ".join(notes))


def _charts(shown: Detail, own: Sequence[Alert], selected: Selection) -> None:
    if not shown.standing.total:
        widgets.note(
            f"No data: no request in the last {span(shown.standing.objective.period_min)} tells "
            f"{shown.standing.objective.metric}.",
            "grey",
            "It is not sent, or no request meets its condition. It is not taken for kept.",
        )
        return
    period = span(shown.standing.objective.period_min)
    st.markdown(f"**Budget left over the last {period}**")
    st.plotly_chart(
        figures.budget(shown, selected.clock),
        key="budget",
        config=_CHART,
        alt="share of the error budget left over the period; the red line is zero",
    )
    step = span(shown.step_min)
    st.markdown(f"**Burn rate by window**, the highest in each {step}; 1x spends it in {period}")
    st.plotly_chart(
        figures.burn(shown, own, selected.clock),
        key="burn",
        config=_CHART,
        alt="burn rate of each window over the period with the rules' factors as lines",
    )
    st.markdown(f"**Good and bad requests**, by {span(shown.bar_min)}")
    st.plotly_chart(
        figures.counts(shown, selected.clock),
        key="counts",
        config=_CHART,
        alt="good and bad requests over the period, stacked",
    )


def _floors(shown: Detail) -> None:
    for each in shown.standing.floors:
        said = {"no_data": "no data", "thin": "not enough events"}.get(each.status, each.status)
        widgets.muted(
            f"floor {each.floor.metric} {said}: {round(each.bad):,} bad of "
            f"{round(each.total):,}, {100 * each.floor.target:g} % must hold"
        )


# --- shared -------------------------------------------------------------------------------------
def _as_of(found: Slos, selected: Selection, objectives: tuple[Objective, ...]) -> None:
    parts = [
        f"as of {selected.clock.text(found.at_ns)} {selected.clock.label}",
        f"{text.counted(found.num_requests, 'request')} in the periods",
    ]
    widgets.muted(" · ".join(parts))
    if found.num_uncounted:
        share = 1 - found.num_uncounted / max(found.num_requests, 1)
        widgets.note(
            f"Still counting: {text.percent(share, 0)} of the requests so far, the latest first. "
            "No figure is final.",
        )
        st.session_state[_DRAWN] = time.monotonic()
        st.fragment(_count_on, run_every=LOOK_S)(selected, objectives, found.num_uncounted)


def _count_on(selected: Selection, objectives: tuple[Objective, ...], before: int) -> None:
    """Have the rest counted, and the page drawn anew when there is more."""
    now = time.monotonic()
    if now - st.session_state.get(_DRAWN, now) < 1.0:
        return  # the page's own run, which has just looked
    if data.ask(slo.count_on, objectives, data.filters(selected), int(now)) != before:
        st.rerun()


def _command(filters: Filters) -> None:
    # as of the end of the minute, which is what the page shows
    end_ns = -(-filters.end_ns // MINUTE_NS) * MINUTE_NS
    widgets.reproduce(places.command("slo", "check", "--at", iso(end_ns), "--json"))


_ALERT_COLUMNS: Final = (
    Column("objective"),
    Column("severity"),
    Column("state"),
    Column("since"),
    Column("until"),
    Column("what was told"),
    Column("change"),
)


_STATES: Final = {"firing": "#e15759", "quiet": "#9aa0a6", "held": "#d4a017"}


def _alert_table(title: str, told: Alerts, own: Sequence[Alert], selected: Selection) -> None:
    st.subheader(title)
    if told.missing:
        widgets.muted(told.missing)
        return
    clock = selected.clock
    rows = [
        Row(
            (
                Cell(each.slo),
                Cell(each.severity),
                Cell(each.state, colour=_STATES.get(each.state)),
                Cell(clock.text(each.started_ns)),
                Cell(clock.text(each.ended_ns)),
                Cell(each.summary),
                Cell(each.change or text.UNKNOWN),
            )
        )
        for each in own[:MAX_ALERTS]
    ]
    if rows:
        table(title.lower(), _ALERT_COLUMNS, rows)
    else:
        widgets.muted("None has fired.")
    age = "never" if told.age_s is None else f"{text.ago(0, int(told.age_s * 1e9))} ago"
    widgets.muted(f"objectives looked at {age}; times in {clock.label}", *told.silences)
    widgets.reproduce(places.command("alerts", "list", "--json"))


PAGE = Page("SLOs", ":material/local_fire_department:", 50, draw)
