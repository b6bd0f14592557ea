"""The summary of a run as lines."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

_MAX_TEXT: Final = 200


def told(found: dict[str, Any]) -> Iterable[str]:
    """The lines of a document of :func:`longpole_engine.load.summary.summary`."""
    if not found["num_due"]:
        yield "no request was due in this time"
        return
    yield f"{found['num_completed']} of {found['num_due']} requests answered in full"
    if found["is_partial"]:
        left = found["num_given_up"]
        yield f"stopped before its end: a part of the run; {left} requests in flight were given up"
    if found["is_behind"]:
        yield (
            "THE GENERATOR FELL BEHIND: this machine could not send as asked; the figures below "
            "are its own, too"
        )
    num_late = found["num_too_late"]
    if num_full := found["num_not_sent"] - num_late:
        yield f"  not sent: {num_full}, as --max-in-flight requests were waiting already"
    if num_late:
        yield f"  not sent: {num_late}, more than 10 s late"
    for name, number in found["failures"].items():
        text = said(found["failure_texts"].get(name, ""))
        yield f"  failed: {name}  {number}" + (f"  ({text})" if text else "")
    for name, number in found["behaviours"].items():
        if name != "reads":
            yield f"  clients: {name}  {number}"
    if found["loop"] == "closed":
        yield "closed loop, not open: clients wait for answers, so a slow target is asked less"
    else:
        yield f"asked {_shown(found['asked_per_s'])} a second, sent {_shown(found['sent_per_s'])}"
    if found["send_lag_ms"]["num"]:
        yield _lag(found["send_lag_ms"])
    for name in ("warm", "cold"):
        part = found[name]
        if not part["num"]:
            continue
        yield f"{name}: {part['num']} requests"
        for title, values in (
            ("TTFT from when it was due, ms", part["latency"]["ttft_ms"]),
            ("whole, from when it was due, ms", part["latency"]["e2e_ms"]),
            ("TTFT from when it was sent, ms", part["service"]["ttft_ms"]),
            ("TPOT, ms a token", part["service"]["tpot_ms"]),
            ("gaps between chunks, ms", part["service"]["itl_ms"]),
        ):
            shown = "  ".join(f"{q} {_quantile(values, q)}" for q in ("p50", "p95", "p99"))
            yield f"  {title:<33}{shown}  max {_shown(values['max'])}  (n {values['num']})"


def said(text: str) -> str:
    """What a target said of a failure, on one line: the message of an error, if it is one."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        found = json.loads(text)
        text = str(found.get("error", found)["message"])
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}..."


def _lag(lag_ms: dict[str, Any]) -> str:
    if lag_ms["p99"] is None:
        return f"sent late by at most {_shown(lag_ms['max'])} ms  (n {lag_ms['num']})"
    return f"sent late by p99 {_shown(lag_ms['p99'])} ms, at most {_shown(lag_ms['max'])}"


def _quantile(values: dict[str, Any], name: str) -> str:
    return "(n too small)" if values[name] is None else _shown(values[name])


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"
