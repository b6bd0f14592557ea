"""The side panel of the waterfall: what is known of the span that was chosen."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import streamlit as st

from longpole_analytics.stats import quantile
from longpole_dashboard.components.waterfall import joined
from longpole_dashboard.model import text
from longpole_dashboard.model.trace_rows import SpanRow
from longpole_dashboard.model.trace_span import MIN_PEERS, Detail, Standing
from longpole_dashboard.theme import look

_MOUNT = st.components.v2.component(
    "longpole_span",
    html='<aside class="panel" tabindex="0" aria-live="polite" aria-label="the chosen span">'
    "</aside>",
    css=joined("common.css", "panel.css"),
    js=joined("common.js", "panel.js"),
)


def panel(name: str, row: SpanRow | None, detail: Detail, wall_ns: int) -> None:
    """Draw what is known of a row; a hint where none is chosen.

    Args:
        name: unique on the page.
        row: the chosen one.
        detail: what is stored of it.
        wall_ns: the trace's, for its share.
    """
    _MOUNT(key=name, data=payload(row, detail, wall_ns) if row else {})


def payload(row: SpanRow, detail: Detail, wall_ns: int) -> dict[str, Any]:
    """What the script draws; every value is text but the offsets of the rug."""
    shown = look(row.stage)
    kind = "model call, shown as its phases" if row.is_call else shown.label
    return {
        "name": shown.label if row.is_phase else row.name,
        "kind": f"{row.num_folded:,} rows folded" if row.num_folded else kind,
        "colour": None if row.is_call or row.num_folded else shown.colour,
        "is_hatched": shown.is_hatched,
        "facts": _facts(row, wall_ns),
        "standing": _standing(detail.standing),
        "rug": _rug(detail.offsets_us),
        "delays": _delays(detail),
        "attributes": detail.pairs,
        "engine": detail.engine_pairs,
        "empty": "" if row.num_folded else "Nothing is stored about this row.",
    }


def _facts(row: SpanRow, wall_ns: int) -> list[tuple[str, str]]:
    critical = text.duration(row.critical_ns / 1e6)
    share = f"{critical} ({text.percent(row.critical_ns / max(wall_ns, 1))})"
    facts = [
        ("all together" if row.num_folded else "time", text.duration(row.total_ns / 1e6)),
        ("starts at", f"+{text.duration(row.start_ns / 1e6)}"),
        ("on the critical path", share if row.critical_ns else "off the path"),
    ]
    if row.num_folded:
        facts.insert(0, ("rows", text.count(row.num_folded)))
    elif row.slack_ns is None:
        facts.append(("slack", "nobody waits for it"))
    else:
        facts.append(("slack", text.duration(row.slack_ns / 1e6)))
    if row.service and not row.is_phase:
        facts.append(("service", row.service))
    return facts


def _standing(found: Standing | None) -> str:
    if found is None:
        return ""
    if found.percentile is None:
        return (
            f"No percentile: {found.n} others of its kind within a day "
            f"({found.kind}), {MIN_PEERS} are needed."
        )
    share = text.percent(found.percentile, 0)
    return f"Slower than {share} of {text.count(found.n)} others within a day: {found.kind}."


def _rug(offsets_us: Sequence[int]) -> dict[str, Any] | None:
    """The arrivals of chunks and what their gaps come to; ``None`` of fewer than two."""
    if len(offsets_us) < 2:
        return None
    gaps = [later - at for at, later in pairwise(offsets_us)]
    middle = quantile(gaps, 0.5) or 0.0
    caption = (
        f"{text.count(len(offsets_us))} chunks; gap p50 {text.duration(middle / 1e3)}, "
        f"longest {text.duration(max(gaps) / 1e3)}"
    )
    return {"offsets": list(offsets_us), "caption": caption}


def _delays(detail: Detail) -> dict[str, Any] | None:
    """Whom the engine served meanwhile; ``None`` where it does not say."""
    if detail.delayed_ms is None:
        return None
    named = sum(each.ms or 0.0 for each in detail.delayed_by)
    rest = detail.delayed_ms - named
    return {
        "total": f"{text.duration(detail.delayed_ms)} in which the engine served others",
        "mates": [
            {
                "id": each.request_id,
                "time": text.duration(each.ms),
                "href": f"trace?trace={each.trace_id}" if each.trace_id else None,
            }
            for each in detail.delayed_by
        ],
        "rest": f"further ones: {text.duration(rest)}" if rest >= 0.001 else "",
    }
