"""What each of many calls costs, from columns to columns: the one definition of a cost.

:func:`longpole_analytics.cost.priced` and the store's column ``cost_usd`` both come from here. Work
that looks at names is done once for each different provider, pair of models and tier; the rest is
arithmetic on whole columns. Needs NumPy and Arrow only, as the collector runs it.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longpole_analytics.prices import CLASSES, TIER_NAMES, Cell, Prices

COUNTS: Final = (
    "start_ns",
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
)
NAMED: Final = ("provider", "request_model", "response_model", "service_tier")
TEXTS: Final = (*NAMED, "reported_currency")
NUMBERS: Final = ("reported_cost_usd", "cache_storage_token_hours")
"""Columns of calls that decide a cost; those that are missing are unknown."""
REPORTED: Final = "reported by the provider"
"""The version stamped on a cost that the provider said itself."""
PROBLEMS: Final = (
    None,
    "negative_tokens",
    "parts_exceed_input",
    "parts_exceed_output",
    "unknown_model",
    "unknown_tier",
    "no_price_at_that_time",
    "unknown_tokens",
    "no_price_of_class",
    "other_currency",
)
"""Why a call has no cost; of several reasons the first."""
NOTES: Final = (None, "total_contradicts_parts", "other_currency")
"""What to doubt about a call that may have one."""
PARTS: Final = ("input_cost_usd", "cached_cost_usd", "write_cost_usd", "output_cost_usd")

_DAY_MINUTES: Final = 1440
_MINUTE_NS: Final = 60 * 10**9
_EARLIEST: Final = np.iinfo(np.int64).min
_LATEST: Final = np.iinfo(np.int64).max
_MAX_GROUPS: Final = 4096
_MAX_TABLE: Final = 1 << 16

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Group(NamedTuple):
    """Calls that are priced alike but for time and size: what their names mean.

    ``cells`` are the numbers of the prices that may hold, of several that do the last one.
    """

    model_key: str | None
    has_tier: bool
    cells: tuple[int, ...]


class Costs(NamedTuple):
    """What each call costs, unknown is not-a-number; a row a call.

    Attributes:
        cost_usd: dollars.
        parts: dollars by :data:`PARTS`, side by side.
        version: place in ``versions`` of what priced it.
        problem: place in :data:`PROBLEMS`.
        note: place in :data:`NOTES`.
        group: place in ``groups``.
        usd_per_mtok: the prices that held, by class, side by side.
        versions: what may have priced a call; ``None`` comes first.
        groups: the different names, as understood.
    """

    cost_usd: Floats
    parts: Floats
    version: Ints
    problem: Ints
    note: Ints
    group: Ints
    usd_per_mtok: Floats
    versions: tuple[str | None, ...]
    groups: list[Group]


class Tariff:
    """A price table, ready to price columns of calls; for any number of threads."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        cells = (*prices.cells, *prices.own)
        self._places: dict[tuple[str, str, bool], list[int]] = {}
        for number, cell in enumerate(cells):
            place = (cell.model_key, cell.service_tier, number >= len(prices.cells))
            self._places.setdefault(place, []).append(number)
        self._bounds = [_bounds(cell) for cell in cells]
        # the last row is of no price: not-a-number
        unknown = [(None,) * len(CLASSES)]
        self._prices_of = np.array([*(c.usd_per_mtok for c in cells), *unknown], np.float64)
        self._version_of = np.where(np.arange(len(cells) + 1) < len(prices.cells), 2, 3)
        own_version = f"{prices.version}, {prices.own_version}"
        self.versions = (None, REPORTED, prices.version, own_version)
        self._groups: dict[tuple[str | None, ...], Group] = {}

    def costs(self, columns: Mapping[str, Any], num: int) -> Costs:
        """What each call costs.

        Args:
            columns: Arrow columns by name, of :data:`TEXTS`, :data:`COUNTS` and :data:`NUMBERS`
                in types of text, 64-bit integers and doubles.
            num: how many calls there are.
        """
        names, which = _distinct([columns.get(name) for name in NAMED], num)
        groups = [self._group(*name) for name in names]
        counts = {name: _floats(columns.get(name), num) for name in COUNTS[1:]}
        cell = self._cells(groups, which, columns.get("start_ns"), counts["input_tokens"])
        prices = self._prices_of[cell]
        work = _Work(counts, _floats(columns.get(NUMBERS[1]), num), prices)
        known = cell < len(self._bounds)
        has_model = np.array([group.model_key is not None for group in groups], np.bool_)
        has_tier = np.array([group.has_tier for group in groups], np.bool_)
        problem = work.problem(has_model[which], has_tier[which], known)
        parts = work.parts()
        parts[problem > 0] = np.nan
        no_class = (problem == 0) & np.isnan(parts).any(axis=1)
        problem[no_class] = PROBLEMS.index("no_price_of_class")
        cost = parts[:, 0] + parts[:, 1] + parts[:, 2] + parts[:, 3]
        version = np.where(np.isnan(cost), 0, self._version_of[cell])
        note = np.where(work.contradicts(), 1, 0)
        reported = _floats(columns.get("reported_cost_usd"), num)
        is_there = np.isfinite(reported)
        if is_there.any():
            is_dollars = _is_dollars(columns.get("reported_currency"), num)
            is_told = is_there & is_dollars & (reported >= 0)
            is_foreign = is_there & ~is_dollars
            cost = np.where(is_told, reported, cost)
            version[is_told] = 1
            note[is_foreign & (note == 0)] = 2
            problem[is_foreign & (problem > 0)] = PROBLEMS.index("other_currency")
            problem[is_told] = 0
        return Costs(cost, parts, version, problem, note, which, prices, self.versions, groups)

    def _group(self, *names: str | None) -> Group:
        found = self._groups.get(names)
        if found is None:
            if len(self._groups) >= _MAX_GROUPS:
                self._groups = {}
            found = self._groups[names] = self._understood(*names)
        return found

    def _understood(
        self, provider: str | None, asked: str | None, answered: str | None, said: str | None
    ) -> Group:
        """The model that answered decides; if no price is known by its name, the one asked for."""
        keys = self._prices.keys(provider, answered)
        if not any(keys):
            keys = self._prices.keys(provider, asked)
        tier = (said or "").lower().strip()
        tier = TIER_NAMES.get(tier, tier)
        cells: list[int] = []
        has_tier = False
        for key, is_own in zip(keys, (False, True), strict=True):
            if key is not None:
                cells += self._places.get((key, tier, is_own), ())
                has_tier |= any((key, tier, kind) in self._places for kind in (False, True))
        return Group(keys[1] or keys[0], has_tier, tuple(cells))

    def _cells(self, groups: list[Group], which: Ints, starts: Any, size: Floats) -> Ints:
        """The number of the prices that hold at each call's moment and prompt size."""
        none = len(self._bounds)
        cell = np.full(len(which), none)
        size = np.nan_to_num(size)
        start: Ints | None = None
        for number, group in enumerate(groups):
            if not group.cells:
                continue
            rows = np.flatnonzero(which == number) if len(groups) > 1 else np.arange(len(which))
            for candidate in group.cells:
                bounds = self._bounds[candidate]
                if bounds == _ALWAYS:
                    cell[rows] = candidate
                    continue
                if start is None:
                    has_start, start = _ints(starts, len(which))
                holds = _holds(bounds, start[rows], has_start[rows], size[rows])
                cell[rows[holds]] = candidate
        return cell


@lru_cache(maxsize=4)
def tariff(prices: Prices) -> Tariff:
    """The tariff of a price table, made once."""
    return Tariff(prices)


class _Bounds(NamedTuple):
    """When and for which prompts prices hold."""

    since_ns: int
    until_ns: int
    from_minute: int
    to_minute: int
    above: float
    up_to: float


_ALWAYS: Final = _Bounds(_EARLIEST, _LATEST, 0, _DAY_MINUTES, -np.inf, np.inf)


def _bounds(cell: Cell) -> _Bounds:
    return _Bounds(
        _EARLIEST if cell.valid_from_ns is None else cell.valid_from_ns,
        _LATEST if cell.valid_to_ns is None else cell.valid_to_ns,
        cell.from_minute,
        cell.to_minute,
        cell.above_tokens or -np.inf,
        np.inf if cell.up_to_tokens is None else cell.up_to_tokens,
    )


def _holds(bounds: _Bounds, start: Ints, has_start: Bools, size: Floats) -> Bools:
    holds: Bools = (size > bounds.above) & (size <= bounds.up_to)
    if bounds.since_ns != _EARLIEST:
        holds &= has_start & (start >= bounds.since_ns)
    if bounds.until_ns != _LATEST:
        holds &= has_start & (start < bounds.until_ns)
    if (bounds.from_minute, bounds.to_minute) != (0, _DAY_MINUTES):
        minute = start // _MINUTE_NS % _DAY_MINUTES
        holds &= has_start & (minute >= bounds.from_minute) & (minute < bounds.to_minute)
    return holds


class _Work:
    """The arithmetic: counts and prices of the calls."""

    def __init__(self, counts: Mapping[str, Floats], storage: Floats, prices: Floats) -> None:
        self._counts = counts
        self._storage = np.nan_to_num(storage)
        self._price = dict(zip(CLASSES, prices.T, strict=True))
        cached, write, long, thought, out = (
            np.nan_to_num(counts[name])
            for name in (
                *("cached_input_tokens", "cache_write_tokens", "cache_write_1h_tokens"),
                *("reasoning_tokens", "output_tokens"),
            )
        )
        self._cached, self._long, self._thought = cached, long, thought
        self._write = np.maximum(write, long)
        self._counted = counts["input_tokens"] + counts["output_tokens"]
        # a total that only fits with the reasoning on top says that it is beside the output
        self._is_beside = (thought > 0) & (counts["total_tokens"] == self._counted + thought)
        self._fresh = counts["input_tokens"] - cached - self._write
        self._plain_output = out + np.where(self._is_beside, thought, 0) - thought

    def problem(self, has_model: Bools, has_tier: Bools, has_price: Bools) -> Ints:
        """Why a call cannot be priced, as far as its counts and names tell."""
        counts = self._counts
        no_output = np.isnan(counts["output_tokens"])
        is_embedding = no_output & np.isnan(self._price["output"])
        reasons = (
            np.logical_or.reduce([counts[name] < 0 for name in COUNTS[1:]]),
            self._fresh < 0,
            self._plain_output < 0,
            ~has_model,
            ~has_price & ~has_tier,
            ~has_price,
            np.isnan(counts["input_tokens"]) | (no_output & ~is_embedding),
        )
        problem = np.zeros(len(has_model), np.int64)
        for number in range(len(reasons), 0, -1):
            problem[reasons[number - 1]] = number
        return problem

    def parts(self) -> Floats:
        """Dollars by :data:`PARTS`; not-a-number where a class that was used has no price."""
        a_request = np.nan_to_num(self._price["request"]) / 1e6
        return np.stack(
            [
                self._money(self._fresh, "input") + a_request,
                self._money(self._cached, "cached_input")
                + self._money(self._storage, "cache_storage"),
                self._money(self._write - self._long, "cache_write")
                + self._money(self._long, "cache_write_1h"),
                self._money(self._plain_output, "output") + self._money(self._thought, "reasoning"),
            ],
            axis=1,
        )

    def contradicts(self) -> Bools:
        """Whether a known total is not what the known counts sum up to."""
        total = self._counts["total_tokens"]
        is_known = ~(np.isnan(total) | np.isnan(self._counted))
        found: Bools = is_known & (total != self._counted) & ~self._is_beside
        return found

    def _money(self, count: Floats, token_class: str) -> Floats:
        found: Floats = np.where(count == 0, 0.0, count * self._price[token_class] / 1e6)
        return found


# --- columns ------------------------------------------------------------------------------------
def _distinct(columns: list[Any], num: int) -> tuple[list[tuple[str | None, ...]], Ints]:
    """The different rows of columns of text, and which of them each row is."""
    code = np.zeros(num, np.int64)
    values: list[list[str | None]] = []
    for column in columns:
        found, codes = _coded(column, num)
        values.append(found)
        if codes is not None:
            code = code * len(found) + codes
    size = int(np.prod([len(found) for found in values], dtype=np.float64))
    if size > _MAX_TABLE:
        present, which = np.unique(code, return_inverse=True)
    else:
        present = np.flatnonzero(np.bincount(code, minlength=size))
        table = np.zeros(size, np.int64)
        table[present] = np.arange(len(present))
        which = table[code]
    rows: list[tuple[str | None, ...]] = []
    for left in present.tolist():
        row: list[str | None] = []
        for found in reversed(values):
            left, at = divmod(left, len(found))  # noqa: PLW2901 - digit by digit
            row.append(found[at])
        rows.append(tuple(reversed(row)))
    return rows, which


def _coded(column: Any, num: int) -> tuple[list[str | None], Ints | None]:
    """The different values of a column of text, null first, and which each row has."""
    if column is None or column.null_count == num:
        return [None], None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    coded = column.dictionary_encode()
    codes = coded.indices
    places = (codes.fill_null(-1) if codes.null_count else codes).to_numpy(zero_copy_only=False)
    return [None, *coded.dictionary.to_pylist()], places.astype(np.int64) + 1


def _floats(column: Any, num: int) -> Floats:
    """A column of numbers, not-a-number where it is null."""
    if column is None or column.null_count == num:
        return np.full(num, np.nan)
    if column.null_count:
        column = column.cast(pa.float64(), safe=False).fill_null(np.nan)
    return np.asarray(column.to_numpy(), np.float64)


def _ints(column: Any, num: int) -> tuple[Bools, Ints]:
    """Where a column of integers is known, and its values."""
    if column is None:
        return np.zeros(num, np.bool_), np.zeros(num, np.int64)
    is_known = column.is_valid().to_numpy(zero_copy_only=False)
    return is_known, column.fill_null(0).to_numpy(zero_copy_only=False)


def _is_dollars(column: Any, num: int) -> Bools:
    """Whether reported money is in US dollars, as it is where nothing is said."""
    values, codes = _coded(column, num)
    if codes is None:
        return np.ones(num, np.bool_)
    is_so = np.array([value is None or value.upper() == "USD" for value in values])
    found: Bools = is_so[codes]
    return found
