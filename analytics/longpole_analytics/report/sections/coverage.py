"""Coverage: how much of what was slow or failed has a place, and what data are missing for it."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.excess import TTFT_STAGES
from longpole_analytics.report.base import Inputs, Part, Piece, Rows, Section, Text
from longpole_analytics.report.commands_text import top_command
from longpole_analytics.report.sections._words import count, share
from longpole_analytics.top import document
from longpole_analytics.weighted import sums_of, totals

MAX_SERVICES: Final = 12
NEEDED: Final = {
    "route": "slices by route",
    "route_version": "versions blamed",
    "prompt_version": "prompts compared",
    "ttft_ms": "time to first token",
    "output_tokens": "time per token, length",
    "input_tokens": "length, cost",
    "cached_input_tokens": "what caches save",
    "outcome": "accepted outcomes",
}
"""What calls should tell, and what it is for."""


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    if not inputs.requests.height:
        return None
    weight = inputs.requests["weight"].fill_null(1.0)
    return {
        **document(inputs.top)["coverage"],
        "services": _services(inputs.calls),
        "ttft_opaque_share": _opaque(inputs.requests),
        "num_incomplete": inputs.num_incomplete,
        "num_sampled": int((weight > 1).sum()),
        "num_stood_for": float(weight.sum()),
    }


def _services(calls: pl.DataFrame) -> list[dict[str, Any]]:
    """By service the share of calls that do not tell something; the largest services."""
    names = [name for name in NEEDED if name in calls.columns]
    if "service" not in calls.columns or not calls.height:
        return []
    sums = sums_of(calls)
    found = (
        calls.group_by("service")
        .agg(pl.len().alias("n"), *(sums.mean(pl.col(n).is_null()).alias(n) for n in names))
        .sort(["n", "service"], descending=[True, False], nulls_last=True)
        .head(MAX_SERVICES)
    )
    return [
        {
            "service": row["service"],
            "num_calls": row["n"],
            "missing": {name: row[name] for name in names if row[name]},
        }
        for row in found.iter_rows(named=True)
    ]


def _opaque(requests: pl.DataFrame) -> float | None:
    """The part of the time to first content that no engine span explains; ``None`` of none."""
    names = [f"{stage.value}_ms" for stage in TTFT_STAGES]
    times = totals(requests, *(pl.col(name).fill_null(0.0) for name in names))
    whole = sum(times)
    opaque = times[names.index(f"{Stage.TTFT_OPAQUE.value}_ms")]
    return opaque / whole if whole > 0 else None


def _show(part: Part) -> list[Piece]:
    pieces: list[Piece] = [Text(_placed(part))]
    if part["reasons"]:
        rows = tuple((each["reason"], count(each["num_traces"])) for each in part["reasons"])
        pieces.append(Rows(("not placed because of", "requests"), rows, frozenset((1,))))
    gaps = [each for each in part["services"] if each["missing"]]
    if gaps:
        told = {each["service"]: each["missing"] for each in gaps}
        missing_rows = tuple(
            (service or "(no name)", name, share(part_of), NEEDED[name])
            for service, missing in told.items()
            for name, part_of in missing.items()
        )
        heads = ("service", "missing", "of its calls", "needed for")
        pieces.append(Rows(heads, missing_rows, frozenset((2,)), "what calls do not tell"))
    if part["ttft_opaque_share"]:
        opaque = share(part["ttft_opaque_share"])
        pieces.append(Text(f"{opaque} of the time to first content is opaque: no engine spans."))
    if part["num_incomplete"]:
        pieces.append(Text(f"{count(part['num_incomplete'])} incomplete traces are left out."))
    if part["num_sampled"]:
        stood = count(round(part["num_stood_for"]))
        pieces.append(
            Text(f"{count(part['num_sampled'])} traces were sampled; all stand for {stood}.")
        )
    return pieces


def _placed(part: Part) -> str:
    if not part["num_traces"]:
        return "Nothing was slow or failed, so there was nothing to place."
    shares = ", ".join(
        f"{name} {share(part[key])}"
        for name, key in (
            ("stage", "stage"),
            ("slice", "slice"),
            ("versioned route", "route"),
            ("all three", "attributed"),
        )
    )
    return f"Of {count(part['num_traces'])} slow or failed requests these have a {shares}."


SECTION = Section(8, "Coverage", _build, _show, top_command)
