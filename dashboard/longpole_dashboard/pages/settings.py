"""Settings and health: what is in force, how the collector does, what the data lack."""

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Final, Literal, TypeVar

import streamlit as st

from longpole.config import find_file
from longpole.errors import LongpoleError
from longpole_analytics.alerts.settings import load_alerts
from longpole_analytics.alerts.trial import send_trial
from longpole_dashboard import data, places, widgets
from longpole_dashboard.components.table import Cell, Column, Row, table
from longpole_dashboard.model import alerts, health, text
from longpole_dashboard.model.alerts import Alerts
from longpole_dashboard.model.health import HealthView, Quality, SettingsView, Sink
from longpole_dashboard.model.verdict_lines.health import Held, of_health
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import is_open, source
from longpole_dashboard.widgets import Selection

MAX_TRACES: Final = 200_000
"""Of more workflows the ledger is computed when it is asked for."""
_POLICIES: Final = {
    "drop": "prompts, answers, tool arguments and documents are dropped; length and hash stay",
    "redact": "prompts and answers are kept without what the rules below find",
    "keep": "prompts and answers are kept for {days} days, then dropped; the spans stay",
}
_SENT: Final = "longpole_sink_said"
_TITLE: Final = "Settings and health"
R = TypeVar("R")


def draw(selected: Selection, held: Bounds) -> None:
    """All of it, in the order in which one looks for it."""
    st.title(_TITLE)
    found = data.ask(health.settings, places.folder(selected))
    told = Held(
        _if_answered(health.lacks),
        _if_answered(health.quality) if held.num_traces <= MAX_TRACES else None,
        bool(held.num_traces),
    )
    st.fragment(_health, run_every=selected.refresh_s)(told)
    _lacks(held)
    _settings(found)
    _sinks(selected)
    _versions(found)


def _without_store() -> None:
    """What the collector tells while its store cannot be asked."""
    st.title(_TITLE)
    _health()


# --- health -------------------------------------------------------------------------------------
def _if_answered(asked: Callable[..., R]) -> R | None:
    """What the page asks for further down too, where it says what fails."""
    try:
        return data.ask(asked)
    except LongpoleError:
        return None


def _health(told: Held | None = None) -> None:
    shown = data.ask(health.health)
    widgets.note(*of_health(shown, told or Held()).parts)
    st.subheader("Collector")
    if shown.missing:
        widgets.muted(shown.missing)
        return
    _counts(shown)
    if shown.problem:
        widgets.note(f"The store cannot be used: {shown.problem}", "worse", *_waiting(shown))
    for name, why in shown.broken:
        widgets.note(f"{name} cannot be read and is left out: {why}", "worse", "longpole doctor")
    if shown.lost:
        rows = [
            Row((Cell(w), Cell(c or text.UNKNOWN), Cell(text.count(n)))) for w, c, n in shown.lost
        ]
        table("not stored as sent", _LOST_COLUMNS, rows)
    else:
        widgets.muted("Nothing was refused, dropped or cut since the collector started.")
    widgets.reproduce(f"curl -s {source().url or 'http://127.0.0.1:4318'}/metrics")


_LOST_COLUMNS: Final = (
    Column("what"),
    Column("cause"),
    Column("since the start", is_number=True),
)


def _counts(shown: HealthView) -> None:
    pairs = [(name, text.count(num)) for name, num in shown.counts]
    pairs.append(("waiting to be stored", _bytes(shown.queue_bytes)))
    if shown.log_bytes is not None:
        pairs.append(("in the log alone", _bytes(shown.log_bytes)))
    if shown.freshness_s is not None:
        half, most = shown.freshness_s
        pairs.append(("half visible within", _bound(half)))
        pairs.append(("99 % visible within", _bound(most)))
    widgets.facts(pairs)
    widgets.muted("since the collector started")


def _waiting(shown: HealthView) -> tuple[str, str]:
    """What becomes of requests while the store is away, and what to do."""
    waits = (
        f"{_bytes(shown.log_bytes)} of acknowledged requests wait"
        if shown.log_bytes
        else "none waits"
    )
    return (
        f"Mend it over there: what is acknowledged goes in by itself ({waits} in the log).",
        "Where the log is full (max_log_bytes) senders are told to come again. "
        "longpole doctor says whether the store answers.",
    )


def _bound(seconds: float) -> str:
    return "over 300 s" if seconds == float("inf") else text.duration(1000 * seconds)


# --- what the data lack -------------------------------------------------------------------------
def _lacks(held: Bounds) -> None:
    st.subheader("What the data lack")
    found = data.ask(health.lacks)
    if not held.num_traces and not found:
        widgets.muted("No spans yet to look at.")
        return
    rows = [
        Row(
            (
                Cell(each.fact, colour="#e15759" if each.is_common else None),
                Cell(each.told),
                Cell(each.fix),
            )
        )
        for each in found
    ]
    if rows:
        table("what the last spans lack", _LACK_COLUMNS, rows)
        widgets.muted(f"of the last {health.LAST_SPANS:,} spans; marked where most lack it")
    else:
        widgets.muted(f"The last {health.LAST_SPANS:,} spans lack nothing.")
    widgets.reproduce(places.command("doctor", "--json"))
    if held.num_traces <= MAX_TRACES or st.button("Compute the ledger of everything stored"):
        _ledger(data.ask(health.quality))


_LACK_COLUMNS: Final = (Column("fact"), Column("how many, and what it would unlock"), Column("fix"))


def _ledger(rows: Sequence[Quality]) -> None:
    # what nobody lacks would push the reasons out of sight
    titles = [title for _, title in health.RATIOS]
    lacking = [i for i in range(len(titles)) if any(each.ratios[i] != 0 for each in rows)]
    columns = (
        Column("service"),
        Column("read as"),
        Column("calls", is_number=True),
        *(Column(titles[i], is_number=True) for i in lacking),
        Column("why"),
    )
    drawn = [
        Row(
            (
                Cell(each.service or text.UNKNOWN),
                Cell(each.dialect),
                Cell(text.count(each.num_calls)),
                *(Cell(text.percent(each.ratios[i])) for i in lacking),
                Cell("; ".join(each.reasons) or "nothing is missing"),
            )
        )
        for each in rows
    ]
    if not drawn:
        widgets.muted("No model call is stored.")
        return
    st.markdown("**Model calls by sender**, all that are stored")
    table("data quality", columns, drawn)
    if nobody := [title for i, title in enumerate(titles) if i not in lacking]:
        widgets.muted(f"0 % everywhere: {', '.join(nobody)}.")
    widgets.reproduce(places.command("query", "SELECT * FROM quality", "--json"))


# --- settings -----------------------------------------------------------------------------------
def _settings(found: SettingsView) -> None:
    st.subheader("Project")
    if found.missing:
        widgets.muted(found.missing)
        return
    free = "" if found.free_bytes is None else f"{_bytes(found.free_bytes)} free on its disk"
    widgets.facts(
        [
            ("project", found.project),
            ("data folder", _bytes(found.num_bytes)),
            ("kept for", f"{found.retention_days} d"),
            ("at most", _bytes(found.retention_bytes)),
            ("content", found.policy),
        ]
    )
    widgets.muted(" · ".join(filter(None, (found.folder, free))))
    _content(found)
    st.subheader("Keys")
    _keys(found)


def _content(found: SettingsView) -> None:
    policy = _POLICIES.get(found.policy, found.policy).format(days=found.keep_days)
    lines = [
        f"Content: {policy}.",
        "Always: credentials and URL queries are dropped, user and session ids are pseudonyms.",
    ]
    if found.policy == "redact":
        own = ", ".join(found.rules) or "none of your own"
        lines.append(f"Rules in force: {', '.join(found.kinds)}; your own: {own}.")
        if found.hook:
            lines.append(f"Then {found.hook} is called; if it fails the text is dropped.")
    widgets.muted(*lines)
    widgets.reproduce(places.command("config", "--json"))


_KEY_COLUMNS: Final = (
    Column("id"),
    Column("name"),
    Column("scope"),
    Column("made"),
    Column("last used"),
)


def _keys(found: SettingsView) -> None:
    if found.keys:
        rows = [
            Row(
                (
                    Cell(key.id),
                    Cell(key.name or text.UNKNOWN),
                    Cell(key.scope),
                    Cell(key.created),
                    Cell(key.last_used or "never"),
                )
            )
            for key in found.keys
        ]
        table("keys", _KEY_COLUMNS, rows)
    else:
        widgets.muted("This project has no key: only this machine reads and sends.")
    widgets.reproduce(places.command("keys", "list", "--json"))


# --- sinks --------------------------------------------------------------------------------------
def _sinks(selected: Selection) -> None:
    st.subheader("Alert sinks")
    if source().is_recorded:
        widgets.muted("Alerts are sent by longpole serve; a file sends none.")
        return
    told = data.ask(alerts.alerts, places.folder(selected))
    try:
        own = health.sinks()
    except LongpoleError as error:
        widgets.note(f"The alert settings cannot be used: {error}", "worse")
        return
    if not own and not told.sinks:
        widgets.muted("None is configured: [alerts.sinks.NAME] in longpole.toml.")
        return
    _sink_table(own, told)
    _send(own)
    widgets.reproduce(places.command("alerts", "test", own[0].name if own else "SINK"))


_SINK_COLUMNS: Final = (
    Column("sink"),
    Column("kind"),
    Column("told of"),
    Column("waiting", is_number=True),
    Column("last message"),
)


def _sink_table(own: Sequence[Sink], told: Alerts) -> None:
    states = {each.name: each for each in told.sinks}
    known = {each.name: (each.kind, each.severities) for each in own}
    known |= {each.name: (each.kind, each.severities) for each in told.sinks}
    rows = []
    for name, (kind, severities) in known.items():
        state = states.get(name)
        rows.append(
            Row(
                (
                    Cell(name),
                    Cell(kind),
                    Cell(", ".join(severities)),
                    Cell(text.UNKNOWN if state is None else text.count(state.num_waiting)),
                    Cell(text.UNKNOWN if state is None else state.last),
                )
            )
        )
    table("alert sinks", _SINK_COLUMNS, rows)
    if told.missing:
        widgets.muted(told.missing)


def _send(own: Sequence[Sink]) -> None:
    """A test by button, where whoever looks is known to be of this machine, or has logged in."""
    if not own:
        widgets.muted(
            "The dashboard's own longpole.toml has no sink, so no test is sent from here."
        )
        return
    if is_open():
        widgets.muted("No test is sent from here: the dashboard is open without a login.")
        return
    line = st.container(horizontal=True, vertical_alignment="center", gap="small")
    for sink in own:
        if line.button(f"Send a test to {text.markdown(sink.name)}", key=f"send-{sink.name}"):
            _confirm(sink.name, sink.kind)
    said = st.session_state.pop(_SENT, None)
    if said is not None:
        widgets.note(*said)


@st.dialog("Send a test?")
def _confirm(name: str, kind: str) -> None:
    st.markdown(
        f"Two messages that say they are a test go to **{text.markdown(name)}** "
        f"({text.markdown(kind)}): an alert, and its end."
    )
    if st.button("Send", type="primary"):
        st.session_state[_SENT] = _sent(name)
        st.rerun()


def _sent(name: str) -> tuple[str, Literal["worse", "better"]]:
    """What came of a test, and its tone."""
    try:
        settings = load_alerts(find_file())
        if settings is None:
            return "No objective and no sink is configured any more.", "worse"
        send_trial(settings, name, time.time())
    except LongpoleError as error:
        return str(error), "worse"
    return f"sink '{name}' took a test alert and its end", "better"


# --- versions -----------------------------------------------------------------------------------
def _versions(found: SettingsView) -> None:
    st.subheader("Versions")
    own = (("dashboard", version("longpole")), ("streamlit", st.__version__))
    widgets.facts([*own, *((f"collector's {name}", said) for name, said in found.versions)])


def _bytes(num: int | None) -> str:
    if num is None:
        return text.UNKNOWN
    size, units = float(num), ["B", "kB", "MB", "GB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{text.significant(size)} {units[0]}"


PAGE = Page(_TITLE, ":material/settings:", 85, draw, without_store=_without_store)
