"""What is told of an alert: one document, ``longpole.alert/1``, and its first line.

Sinks render it and ask nothing. Names from spans stand in it as they came, but for control
characters, and cut: no prompt, no answer, no person.
"""

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

from longpole_analytics.alerts.settings import DEFAULT_PROJECT
from longpole_analytics.slo.check import RuleStatus, Standing, time_text
from longpole_analytics.slo.floors import promise_of
from longpole_analytics.slo.objectives import LATENCIES, Objective, span
from longpole_analytics.wording import percent, printable

SCHEMA: Final = "longpole.alert/1"
MAX_LINE: Final = 140
MAX_NAME: Final = 120
MAX_TEXT: Final = 400
Status = Literal["firing", "resolved", "ack"]
Event = dict[str, Any]
EVALUATION: Final = "longpole-evaluation"
"""Stands for an objective's id where the objectives could not be looked at."""
_NO_CAUSE: Final = "cause not looked for"


@dataclass(frozen=True)
class Cause:
    """Why a budget burns, as far as it is known.

    Attributes:
        stage: stage with most of the excess; ``None`` if unknown.
        share_of_excess: its share of it.
        excess_ms: what it adds to the median slow request.
        shape: latency shape.
        confidence: ``high``, ``medium``, ``low`` or ``none``.
        slices: what bad requests share, each with its shares of bad and of other requests.
        unknown: what is not known, and why; empty if all is.
        change: what changed, as ``prompt_version v41 -> v42``.
        changed_ns: when.
        next_step: what to do.
        traces: bad traces to look at.
    """

    stage: str | None = None
    share_of_excess: float | None = None
    excess_ms: float | None = None
    shape: str | None = None
    confidence: str = "none"
    slices: tuple[dict[str, Any], ...] = ()
    unknown: str = _NO_CAUSE
    change: str | None = None
    changed_ns: int | None = None
    next_step: str = ""
    traces: tuple[str, ...] = ()


def fingerprint(project: str, objective: Objective, severity: str) -> str:
    """Names the alert of an objective over its slice: the same after every restart."""
    told = "\0".join((project, objective.id, severity, objective.where or ""))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def burning(standing: Standing, severity: str) -> RuleStatus:
    """The rule of a severity that burns most above its factor, firing ones first."""
    ours = [each for each in standing.rules if each.rule.severity == severity]
    return max(
        ours,
        key=lambda each: (each.status == "firing", (each.burn_long or 0.0) / each.factor_used),
    )


def make_event(
    project: str,
    standing: Standing,
    severity: str,
    status: Status,
    cause: Cause,
    *,
    started_ns: int,
    now_ns: int,
    dashboard: str,
) -> Event:
    """The document of an alert at a moment."""
    objective, rule = standing.objective, burning(standing, severity)
    name = fingerprint(project, objective, severity)
    left = standing.budget
    event: Event = {
        "schema": SCHEMA,
        "id": hashlib.sha256(f"{name}/{started_ns}".encode()).hexdigest()[:16],
        "fingerprint": name,
        "status": status,
        "severity": severity,
        "project": project,
        "slo": {
            "id": objective.id,
            "objective": objective.text,
            "owner": clean(objective.owner),
            "class": objective.task_class,
            "route": route_of(objective),
            "description": clean(objective.description, MAX_TEXT),
        },
        "burn": _burn(rule, left.burn_24h),
        "budget": {
            "remaining": _rounded(left.remaining),
            "exhausted_at": time_text(left.exhausted_at),
            "reason": left.reason or None,
        },
        "events": {"bad": standing.bad, "total": standing.total},
        "cause": _cause(cause),
        "change": None
        if cause.change is None
        else {"what": clean(cause.change), "at": moment(cause.changed_ns or now_ns)},
        "next_step": clean(cause.next_step, MAX_TEXT),
        "links": _links(dashboard, objective, rule, cause.traces, now_ns)
        | {"silence": _silence(project, objective)},
        "started_at": moment(started_ns),
        "updated_at": moment(now_ns),
    }
    return event | {"summary": first_line(event, now_ns)}


def first_line(event: Event, now_ns: int) -> str:
    """What is read first everywhere, at most :data:`MAX_LINE` characters."""
    burn, budget, cause = event["burn"], event["budget"], event["cause"]
    status = {"firing": event["severity"].upper(), "ack": "ACK", "resolved": "RESOLVED"}
    head = f"{status[event['status']]} {event['slo']['id']}: "
    facts = []
    if burn["rate_long"] is not None:
        facts.append(f"burn {burn['rate_long']:.3g}x ({burn['long']})")
    else:
        facts.append(f"no events in {burn['long']}")
    if budget["remaining"] is not None:
        facts.append(f"{100 * budget['remaining']:.0f}% budget")
    if budget["exhausted_at"] is not None and (budget["remaining"] or 0) > 0:
        ends = datetime.fromisoformat(budget["exhausted_at"]).timestamp()
        facts.append(f"~{_long(ends - now_ns / 1e9)} left")
    found = []
    if event["status"] == "firing":
        if cause["stage"] is not None:
            more = cause["excess_ms"]
            found.append(cause["stage"] + ("" if more is None else f" {_signed(more)}"))
        found += [_where_text(part) for part in cause["slices"][:1]]
        if not cause["slices"]:
            found.append(cause["unknown"])
    line = f"{head}{', '.join(facts)}. {', '.join(filter(None, found))}".rstrip(" .")
    return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"


def trouble(
    project: str, reason: str, status: Status, *, started_ns: int, now_ns: int, dashboard: str
) -> Event:
    """The document that says that no objective could be looked at for a while."""
    name = hashlib.sha256(f"{project}\0evaluation".encode()).hexdigest()[:16]
    minutes = max((now_ns - started_ns) // (60 * 10**9), 0)
    head = "TICKET" if status == "firing" else status.upper()
    said = f"{head} {EVALUATION}: "
    if status == "firing":
        said += f"no objective was looked at for {minutes} min: {clean(reason)}"
    else:
        said += "objectives are looked at again"
    nothing = dict.fromkeys(("long", "short", "rate_long", "rate_short", "rate_24h", "factor"))
    return {
        "schema": SCHEMA,
        "id": hashlib.sha256(f"{name}/{started_ns}".encode()).hexdigest()[:16],
        "fingerprint": name,
        "status": status,
        "severity": "ticket",
        "project": project,
        "slo": {
            **dict.fromkeys(("owner", "class", "route", "description")),
            "id": EVALUATION,
            "objective": "objectives are looked at",
        },
        "burn": nothing | {"adjusted": False},
        "budget": dict.fromkeys(("remaining", "exhausted_at", "reason")),
        "events": {"bad": None, "total": None},
        "cause": _cause(Cause(unknown=reason)),
        "change": None,
        "next_step": "see the collector's log, then `longpole doctor`",
        "links": dict.fromkeys(("slo", "runbook", "silence"))
        | {"explore": f"{dashboard}/overview", "traces": []},
        "started_at": moment(started_ns),
        "updated_at": moment(now_ns),
        "summary": said[:MAX_LINE],
    }


def over(event: Event, now_ns: int) -> Event:
    """The end of an alert of which nothing more can be known."""
    return event | {
        "status": "resolved",
        "summary": f"RESOLVED {event['slo']['id']}: the objective is watched no more",
        "updated_at": moment(now_ns),
    }


def fields(event: Event) -> list[tuple[str, str]]:
    """The facts of an event as (name, text), for people; at most ten."""
    burn, budget, cause = event["burn"], event["budget"], event["cause"]
    told: list[tuple[str, str | None]] = [
        ("objective", event["slo"]["objective"]),
        ("burn", _burn_text(burn)),
        ("budget left", None if budget["remaining"] is None else percent(budget["remaining"])),
        ("used up at", budget["exhausted_at"]),
        ("bad", _bad_text(event["events"])),
        ("stage", _stage_text(cause)),
        ("slice", "; ".join(_slice_text(part) for part in cause["slices"]) or None),
        ("change", _change_text(event["change"])),
        ("not known", cause["unknown"] or None),
        ("owner", event["slo"]["owner"]),
    ]
    return [(name, text) for name, text in told if text]


def links(event: Event) -> list[tuple[str, str]]:
    """The links of an event as (name, address)."""
    found = event["links"]
    pairs = [(name, found[name]) for name in ("explore", "slo", "runbook") if found[name]]
    return pairs + [(f"trace {n}", url) for n, url in enumerate(found["traces"], start=1)]


def clean(text: str | None, most: int = MAX_NAME) -> str | None:
    """Text from outside without control characters, cut."""
    if text is None:
        return None
    found = printable(text).strip()
    return found if len(found) <= most else found[: most - 1] + "…"


def moment(at_ns: int) -> str:
    """A time in ISO 8601, UTC, to the second."""
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def route_of(objective: Objective) -> str | None:
    """The route that an objective is about, where its condition is just that."""
    found = re.fullmatch(r"\s*route\s*=\s*'([^']*)'\s*", objective.where or "")
    return clean(found[1]) if found else None


# --- parts --------------------------------------------------------------------------------------
def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "stage": cause.stage,
        "share_of_excess": _rounded(cause.share_of_excess),
        "excess_ms": _rounded(cause.excess_ms),
        "shape": cause.shape,
        "confidence": cause.confidence,
        "slices": [
            {
                **part,
                "where": {
                    clean(name) or "": clean(value) or "" for name, value in part["where"].items()
                },
            }
            for part in cause.slices
        ],
        "unknown": clean(cause.unknown, MAX_TEXT) or "",
    }


def _burn(rule: RuleStatus, burn_24h: float | None) -> dict[str, Any]:
    return {
        "long": span(rule.rule.long_min),
        "short": span(rule.rule.short_min),
        "rate_long": _rounded(rule.burn_long),
        "rate_short": _rounded(rule.burn_short),
        "rate_24h": _rounded(burn_24h),
        "factor": _rounded(rule.factor_used),
        "adjusted": rule.factor_used != rule.rule.factor,
    }


def _links(
    dashboard: str, objective: Objective, rule: RuleStatus, traces: Sequence[str], now_ns: int
) -> dict[str, Any]:
    """Addresses of the dashboard's pages: the map with what is bad boxed, the promise, traces."""
    begins_ns = now_ns - rule.rule.long_min * 60 * 10**9
    asked = {"from": moment(begins_ns), "to": moment(now_ns), "route": route_of(objective)}
    if objective.metric in LATENCIES:
        asked |= {"metric": objective.metric, "box": f",,{objective.threshold:.17g},"}
    query = urlencode({key: value for key, value in asked.items() if value}, quote_via=quote)
    return {
        "explore": f"{dashboard}/explore?{query}",
        "slo": f"{dashboard}/slo?{urlencode({'slo': promise_of(objective.id)})}",
        "traces": [f"{dashboard}/trace?{urlencode({'trace': each})}" for each in traces],
        "runbook": objective.runbook,
    }


def _silence(project: str, objective: Objective) -> str:
    """The command that keeps an alert quiet; no page does."""
    of = "" if project == DEFAULT_PROJECT else f" --project {shlex.quote(project)}"
    return f"longpole alerts silence {objective.id}{of}"


def _burn_text(burn: dict[str, Any]) -> str | None:
    if burn["rate_long"] is None:
        return None
    short = "-" if burn["rate_short"] is None else f"{burn['rate_short']:.3g}x"
    lowered = " (lowered)" if burn["adjusted"] else ""
    return (
        f"{burn['rate_long']:.3g}x ({burn['long']}), {short} ({burn['short']}), "
        f"above {burn['factor']:.3g}{lowered}"
    )


def _bad_text(events: dict[str, Any]) -> str | None:
    return None if events["bad"] is None else f"{events['bad']:g} of {events['total']:g}"


def _stage_text(cause: dict[str, Any]) -> str | None:
    if cause["stage"] is None:
        return None
    share = cause["share_of_excess"]
    of = "" if share is None else f", {percent(share)} of the excess"
    shape = f" ({cause['shape']})" if cause["shape"] else ""
    return f"{cause['stage']}{of}{shape}"


def _slice_text(part: dict[str, Any]) -> str:
    bad, rest = percent(part["of_bad"]), percent(part["of_rest"])
    return f"{_where_text(part)}: {bad} of bad, {rest} of others"


def _where_text(part: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in part["where"].items())


def _change_text(change: dict[str, Any] | None) -> str | None:
    return None if change is None else f"{change['what']} at {change['at']}"


def _signed(ms: float) -> str:
    return f"{ms / 1000:+.2g} s" if abs(ms) >= 1000 else f"{ms:+.0f} ms"


def _long(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f}d"
    return f"{seconds / 3600:.0f}h" if seconds >= 7200 else f"{max(seconds, 0) / 60:.0f}min"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
