"""Cache and cost: what caching saved, writes nobody read, when a write pays, what was wasted."""

from collections.abc import Mapping
from typing import Any, Final

from longpole_analytics.report.base import Inputs, Part, Piece, Rows, Section, Text
from longpole_analytics.report.commands_text import command
from longpole_analytics.report.sections._words import count, share, usd
from longpole_analytics.wording import sampled_text

MAX_ROWS: Final = 10


def _build(inputs: Inputs, _: Mapping[str, Part]) -> Part | None:
    return inputs.cache


def _show(part: Part) -> list[Piece]:
    pieces: list[Piece] = [Text(line) for line in lines(part)]
    routes = part["cost"]["routes"]
    if routes:
        heads = ("route", "calls", "cost", "per accepted", "without a price")
        rows = tuple(
            (
                row["route"] or "(no route)",
                count(round(row["num_calls"])),
                usd(row["cost_usd"]),
                usd(row["cost_per_accepted_usd"]),
                count(round(row["num_unpriced"])),
            )
            for row in routes[:MAX_ROWS]
        )
        pieces.append(Rows(heads, rows, frozenset((1, 2, 3, 4)), "cost by route"))
    pieces += [_writes(part), _evens(part), _wasted(part)]
    return [piece for piece in pieces if not isinstance(piece, Rows) or piece.rows]


def lines(part: Part) -> list[str]:
    """What caches saved and what all calls cost, in sentences."""
    hits, cost = part["hits"]["all"], part["cost"]["all"]
    found = []
    if hits is not None and hits["num_known"]:
        known = count(round(hits["num_known"]))
        found.append(
            f"{share(hits['hit_rate_tokens'])} of the input came from a cache, in "
            f"{share(hits['hit_rate_requests'])} of {known} calls that say so; "
            f"saved {usd(hits['saved_usd'])}."
        )
    elif hits is not None:
        found.append("No call says how much of its input came from a cache.")
    if cost is not None:
        unpriced = cost["num_unpriced"]
        more = f", {count(round(unpriced))} calls have no price" if unpriced else ""
        found.append(
            f"All {count(round(cost['num_calls']))} calls cost {usd(cost['cost_usd'])}{more}."
        )
    if "sampling" in part:
        found.append(f"{sampled_text(part['sampling'], 'calls')}.")
    return found


def _writes(part: Part) -> Rows:
    heads = ("route", "prompt", "writes", "nobody read", "of tokens", "lost")
    rows = tuple(
        (
            row["route"] or "(no route)",
            row["prompt_version"] or "-",
            count(round(row["num_writes"])),
            count(round(row["num_wasted"])),
            share(row["wasted_share"]),
            usd(row["wasted_usd"]),
        )
        for row in part["wasted_writes"][:MAX_ROWS]
    )
    return Rows(heads, rows, frozenset((2, 3, 4, 5)), "writes to the cache")


def _evens(part: Part) -> Rows:
    heads = ("model", "write", "lives", "reads that pay for it", "requests an hour")
    rows = tuple(
        (
            row["model"],
            row["write"],
            f"{row['ttl_s']:g} s",
            _number(row["min_reads"]),
            _number(row["per_hour"]),
        )
        for row in part["break_even"][:MAX_ROWS]
    )
    return Rows(heads, rows, frozenset((2, 3, 4)), "when a write pays")


def _wasted(part: Part) -> Rows:
    heads = ("wasted on", "calls", "cost", "share")
    rows = tuple(
        (
            row["waste"].replace("_", " "),
            count(round(row["num_calls"])),
            usd(row["cost_usd"]),
            share(row["share_of_cost"]),
        )
        for row in part["cost"]["wasted"]
    )
    return Rows(heads, rows, frozenset((1, 2, 3)), "wasted calls")


def _number(value: Any) -> str:
    return "never" if value is None else f"{value:.3g}"


def _command(inputs: Inputs) -> str:
    return command(inputs, "cache") if inputs.cache is not None else ""


SECTION = Section(7, "Cache and cost", _build, _show, _command)
