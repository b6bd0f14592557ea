"""The summary of a run as lines."""

from collections.abc import Iterable
from typing import Any


def told(found: dict[str, Any]) -> Iterable[str]:
    """The lines of a document of :func:`longpole_engine.load.summary.summary`."""
    yield f"{found['num_completed']} of {found['num_due']} requests answered in full"
    if found["is_partial"]:
        yield "stopped before its end: a part of the run"
    if found["is_behind"]:
        yield (
            "THE GENERATOR FELL BEHIND: this machine could not send as fast as asked; the figures "
            f"below are its own, too ({found['num_not_sent']} not sent)"
        )
    for name, number in found["failures"].items():
        yield f"  failed: {name}  {number}"
    if found["loop"] == "closed":
        yield "closed loop, not open: clients wait for answers, so a slow target is asked less"
    else:
        yield f"asked {_shown(found['asked_per_s'])} a second, sent {_shown(found['sent_per_s'])}"
    yield f"sent late by p99 {_quantile(found['send_lag_ms'], 'p99')} ms"
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


def _quantile(values: dict[str, Any], name: str) -> str:
    return "(n too small)" if values[name] is None else _shown(values[name])


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"
