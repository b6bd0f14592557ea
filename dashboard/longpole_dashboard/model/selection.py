"""What the bar of every page says, as an address spells it and as a page asks for it.

An address is written by people and by other programs: whatever it holds, it gives a selection,
and a sentence for each part of it that could not be followed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from longpole_dashboard.model.clock import UTC_CLOCK, Clock, iso
from longpole_dashboard.model.window import COLUMNS, SECOND_NS, Bounds, Filters, Match

EVERYTHING: Final = "all"
CUSTOM: Final = "custom"
RANGES: Final[dict[str, int | None]] = {
    "15 min": 900,
    "1 h": 3_600,
    "6 h": 21_600,
    "24 h": 86_400,
    "7 d": 604_800,
    EVERYTHING: None,
}
"""Range, as the page and the address call it -> seconds."""
OPENING: Final = "1 h"
"""The shortest range that a live store opens with."""
REFRESH_S: Final[dict[str, int | None]] = {"off": None, "10 s": 10, "60 s": 60}
PREVIOUS: Final = "previous"
WEEK: Final = "week"
VERSIONS: Final = {"prompt_version": "prompt", "route_version": "route version"}
"""Columns of versions to compare with, and what a page calls them."""
NAMES: Final = (
    *("range", "from", "to", "route", "model", "compare", "tz", "refresh", "where", "project"),
)
"""The bar's parameters of an address; a page has its own besides."""
_WEEK_NS: Final = 604_800 * SECOND_NS
_MAX_WHERE: Final = 8
_MAX_SHOWN: Final = 60

Address = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Selection:
    """What the bar says.

    Attributes:
        choice: a key of ``RANGES``, or ``custom``.
        route: one route; ``None`` is all.
        refresh_s: seconds between refreshes; ``None`` is off.
        model: one model asked for; ``None`` is all.
        from_ns: where a custom range begins.
        to_ns: where it ends.
        compare: ``previous``, ``week``, or a column of ``VERSIONS`` with its value, ``NAME=VALUE``.
        is_local: times are shown in the reader's zone.
        clock: shows times.
        where: what must hold besides.
        project: of a source that holds several; ``None`` is its default one.
    """

    choice: str
    route: str | None = None
    refresh_s: int | None = None
    model: str | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    compare: str = PREVIOUS
    is_local: bool = False
    clock: Clock = UTC_CLOCK
    where: tuple[Match, ...] = ()
    project: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the range may end now."""
        return self.choice not in (CUSTOM, EVERYTHING)


@dataclass(frozen=True)
class Known:
    """What an address may name: the store's content, the range a page opens with, projects."""

    held: Bounds
    opening: str
    projects: tuple[str, ...] = ()


def default_range(held: Bounds, now_ns: int, is_recorded: bool) -> str:
    """The range a page opens with: everything for recorded files, else the last hour.

    A live store whose newest trace is older than an hour opens with the shortest range that
    still shows it, so that the first look is never empty without need.
    """
    if is_recorded:
        return EVERYTHING
    if held.last_ns is None:
        return OPENING
    age_s = max((now_ns - held.last_ns) / SECOND_NS, RANGES[OPENING] or 0)
    return next(name for name, length_s in RANGES.items() if length_s is None or age_s <= length_s)


def read(address: Address, known: Known, clock: Clock) -> tuple[Selection, tuple[str, ...]]:
    """The selection of an address, and a sentence for each part that it falls back on.

    Args:
        address: parameter -> its values, of which the last counts (of ``where`` all do).
        known: what it may name.
        clock: of the reader.
    """
    said: list[str] = []
    given = {name: values[-1] for name, values in address.items() if values}
    held = known.held
    choice, from_ns, to_ns = _range(given, known.opening, said)
    refresh = _one_of(given, "refresh", tuple(REFRESH_S), "off", said)
    tz = _one_of(given, "tz", ("UTC", "local"), "UTC", said)
    found = Selection(
        choice,
        route=_named(given, "route", held.routes, said),
        refresh_s=REFRESH_S[refresh],
        model=_named(given, "model", held.models, said),
        from_ns=from_ns,
        to_ns=to_ns,
        compare=_compare(given, held, said),
        is_local=tz == "local",
        clock=clock if tz == "local" else UTC_CLOCK,
        where=_where(address.get("where", ()), said),
        project=_named(given, "project", known.projects, said),
    )
    if found.refresh_s is not None and not found.is_live:
        found = replace(found, refresh_s=None)
    return found, tuple(said)


def write(selected: Selection, opening: str) -> dict[str, list[str]]:
    """The parameters of an address that says this, without what it says anyway."""
    refresh = next(name for name, s in REFRESH_S.items() if s == selected.refresh_s)
    is_custom = selected.choice == CUSTOM
    found = {
        "range": None if is_custom or selected.choice == opening else selected.choice,
        "from": iso(selected.from_ns) if is_custom and selected.from_ns is not None else None,
        "to": iso(selected.to_ns) if is_custom and selected.to_ns is not None else None,
        "route": selected.route,
        "model": selected.model,
        "compare": None if selected.compare == PREVIOUS else selected.compare,
        "tz": "local" if selected.is_local else None,
        "refresh": None if selected.refresh_s is None else refresh,
        "project": selected.project,
    }
    told = {name: [value] for name, value in found.items() if value is not None}
    return told | ({"where": [spelled(m) for m in selected.where]} if selected.where else {})


def spelled(match: Match) -> str:
    """A match as an address has it: ``prompt_version=v42``, ``route!=chat``; unknown is empty."""
    return f"{match.column}{'!=' if match.is_not else '='}{match.value or ''}"


def resolve(selected: Selection, held: Bounds, now_ns: int, is_recorded: bool) -> Filters:
    """The filters of a selection.

    Args:
        selected: what the bar says.
        held: what the store holds.
        now_ns: the clock.
        is_recorded: anchor the range at the last trace instead of at the clock.
    """
    first_ns = now_ns if held.first_ns is None else held.first_ns
    last_ns = now_ns if held.last_ns is None else held.last_ns
    end_ns = last_ns + 1 if is_recorded else max(now_ns, last_ns + 1)
    seconds = RANGES.get(selected.choice)
    if selected.choice == CUSTOM and selected.from_ns is not None and selected.to_ns is not None:
        start_ns, end_ns = selected.from_ns, selected.to_ns
    elif seconds is None:
        start_ns, end_ns = first_ns, last_ns + 1
    else:
        start_ns = end_ns - seconds * SECOND_NS
    bar = (("route", selected.route), ("request_model", selected.model))
    where = (*(Match(name, value) for name, value in bar if value is not None), *selected.where)
    now = Filters(start_ns, end_ns, where)
    asked = None if selected.choice == CUSTOM else repr(replace(selected, clock=UTC_CLOCK))
    baseline, versus = _baseline(now, selected, first_ns)
    return replace(now, baseline=baseline, versus=versus, asked=asked)


def _baseline(now: Filters, selected: Selection, first_ns: int) -> tuple[Filters | None, str]:
    """What a selection is compared with, and its name; nothing before the first trace."""
    column, has_version, version = selected.compare.partition("=")
    if has_version:
        own = tuple(match for match in now.where if match.column != column)
        named = f"{VERSIONS[column]} {version}"
        return Filters(now.start_ns, now.end_ns, (*own, Match(column, version))), named
    length_ns = now.end_ns - now.start_ns
    by_ns = _WEEK_NS if selected.compare == WEEK else length_ns
    if first_ns >= now.end_ns - by_ns or first_ns >= now.start_ns:
        return None, ""
    named = "same hours last week" if selected.compare == WEEK else "previous period"
    if selected.compare == PREVIOUS and RANGES.get(selected.choice) is not None:
        named = f"previous {selected.choice}"
    return Filters(now.start_ns - by_ns, now.end_ns - by_ns, now.where), named


# --- one parameter ------------------------------------------------------------------------------
def _range(
    given: Mapping[str, str], opening: str, said: list[str]
) -> tuple[str, int | None, int | None]:
    if "from" in given or "to" in given:
        from_ns, to_ns = (UTC_CLOCK.read(given.get(name, "")) for name in ("from", "to"))
        if from_ns is not None and to_ns is not None and from_ns < to_ns:
            return CUSTOM, from_ns, to_ns
        if from_ns is None or to_ns is None:
            said.append("The address has no range of two times in ISO 8601 (from, to)")
        else:
            said.append("The address has a range that ends before it begins")
        said[-1] += f": this is {_range_text(opening)}."
        return opening, None, None
    return _one_of(given, "range", tuple(RANGES), opening, said), None, None


def _range_text(choice: str) -> str:
    return "everything stored" if choice == EVERYTHING else f"the last {choice}"


def _one_of(
    given: Mapping[str, str], name: str, known: Sequence[str], usual: str, said: list[str]
) -> str:
    value = given.get(name, usual)
    if value in known:
        return value
    said.append(
        f"The address asks for {name} '{_short(value)}', which there is not: it is {usual}."
    )
    return usual


def _named(
    given: Mapping[str, str], name: str, known: Sequence[str], said: list[str]
) -> str | None:
    value = given.get(name)
    if not value or value in known:
        return value or None
    said.append(f"The store knows no {name} '{_short(value)}': all are shown.")
    return None


def _compare(given: Mapping[str, str], held: Bounds, said: list[str]) -> str:
    value = given.get("compare", PREVIOUS)
    column, has_version, version = value.partition("=")
    versions = {"prompt_version": held.prompt_versions, "route_version": held.route_versions}
    if value in (PREVIOUS, WEEK) or (has_version and version in versions.get(column, ())):
        return value
    said.append(f"There is no '{_short(value)}' to compare with: compared is the period before.")
    return PREVIOUS


def _where(given: Sequence[str], said: list[str]) -> tuple[Match, ...]:
    found: list[Match] = []
    for each in given:
        name, has_value, value = each.partition("=")
        match = Match(name.removesuffix("!"), value or None, name.endswith("!"))
        if not has_value or match.column not in COLUMNS or "\0" in value:
            said.append(f"'{_short(each)}' is no condition NAME=VALUE: it is left out.")
        elif match not in found:
            found.append(match)
    if len(found) > _MAX_WHERE:
        said.append(f"The address has over {_MAX_WHERE} conditions: the first ones hold.")
    return tuple(found[:_MAX_WHERE])


def _short(value: str) -> str:
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…"
