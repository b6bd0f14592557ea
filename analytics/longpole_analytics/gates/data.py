"""What checks read: each population once, from wherever the command says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longpole.errors import BadInput, UsageError
from longpole_analytics.attribution import CauseRules
from longpole_analytics.loading import Source, load_requests, select
from longpole_analytics.outcome_facts import outcome_facts
from longpole_analytics.scorecard.rules import CardRules
from longpole_analytics.slo.check import Standing, check, num_minutes
from longpole_analytics.thresholds import configured

if TYPE_CHECKING:
    import polars as pl

    from longpole_analytics.prices import Prices
    from longpole_analytics.slo.objectives import Objective

MINUTE_NS = 60 * 10**9


class Loaded:
    """A source over a window, [since, until) in Unix epoch nanoseconds; ``None`` leaves it open."""

    def __init__(
        self,
        source: Source,
        where: str | None,
        window: tuple[int | None, int | None],
        now_ns: int,
        *,
        objectives: Sequence[Objective] = (),
        prices: Prices | None = None,
        folder: Path | None = None,
        fresh_ns: int | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            source: where to read.
            where: the condition of all requests.
            window: when they began.
            now_ns: what counts as now, where the window is open.
            objectives: what is promised.
            prices: what calls cost; ``None`` looks for them.
            folder: what the names of baselines are relative to.
            fresh_ns: of what is judged, only requests that began since; what it is compared with
                stays whole.
        """
        self._source = source
        self._where = where
        self._window = window
        self.until_ns = window[1] if window[1] is not None else now_ns
        self._objectives = objectives
        self._prices = prices
        self._folder = folder or Path()
        self._fresh_ns = fresh_ns
        self._whole: pl.DataFrame | None = None

    @property
    def window_ns(self) -> tuple[int | None, int]:
        """When it begins, if it does, and when it ends."""
        return self._window[0], self.until_ns

    def fresh(self, since_ns: int) -> Loaded:
        """The same for a look at what began since a moment, which no earlier look has counted."""
        return Loaded(
            self._source,
            self._where,
            self._window,
            self.until_ns,
            objectives=self._objectives,
            prices=self._prices,
            folder=self._folder,
            fresh_ns=since_ns,
        )

    def requests(self, where: str | None) -> pl.DataFrame:
        """As of :class:`~longpole_analytics.gates.base.Data`."""
        if self._whole is None:
            since_ns, until_ns = self._judged(self._window)
            self._whole = load_requests(
                self._source, where=self._where, since_ns=since_ns, until_ns=until_ns
            )
        return select(self._whole, where)

    def sides(self, base: str, cand: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """As of :class:`~longpole_analytics.gates.base.Data`."""
        return self._side(base, is_judged=False), self._side(cand, is_judged=True)

    def standings(self, ids: Sequence[str]) -> list[Standing]:
        """As of :class:`~longpole_analytics.gates.base.Data`.

        Raises:
            UsageError: there is no such objective.
        """
        known = {each.id: each for each in self._objectives}
        for name in ids:
            if name not in known:
                there = ", ".join(known) or "none"
                raise UsageError(f"no objective '{name}': there are {there}")
        chosen = [known[name] for name in ids] or list(self._objectives)
        if not chosen:
            raise UsageError("no objective to check: write [slo.NAME] with metric, target, period")
        first = (self.until_ns - 1) // MINUTE_NS - num_minutes(chosen) + 1
        since_ns = max(first * MINUTE_NS, self._fresh_ns or 0)
        whole = load_requests(
            self._source,
            since_ns=since_ns,
            until_ns=self.until_ns,
            outcome_facts=outcome_facts(chosen),
        )
        return check(chosen, lambda each: select(whole, each.where), self.until_ns)

    def cause_rules(self) -> CauseRules:
        """Those of ``longpole top``: with ``[analytics.causes]`` of the nearest configuration."""
        return configured(CauseRules(), "causes")

    def card_rules(self) -> CardRules:
        """Those of ``longpole compare``: with ``[analytics.compare]`` likewise."""
        return configured(CardRules(), "compare")

    def baseline(self, path: str) -> dict[str, Any]:
        """As of :class:`~longpole_analytics.gates.base.Data`.

        Raises:
            UsageError: there is none yet.
            BadInput: it cannot be read.
        """
        file = self._folder / path
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UsageError(
                f"no baseline {file}: make one, by longpole gate --save-baseline {file}"
            ) from error
        except (OSError, ValueError) as error:
            raise BadInput(f"{file}: no baseline: {error}") from error
        if not isinstance(found, dict):
            raise BadInput(f"{file}: no baseline")
        return found

    def _judged(self, window: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
        """A window of what is judged, as far as it is fresh."""
        since_ns, until_ns = window
        if self._fresh_ns is None:
            return window
        return max(since_ns or 0, self._fresh_ns), until_ns

    def _side(self, word: str, *, is_judged: bool) -> pl.DataFrame:
        from longpole_analytics.compare_loading import load_compared, part_of
        from longpole_analytics.price_overrides import configured_prices

        source, condition, own = part_of(word, self._source, self.until_ns)
        is_file = bool(source.files) and source.files != self._source.files
        window = own or ((None, None) if is_file else self._window)
        since_ns, until_ns = self._judged(window) if is_judged else window
        parts = [f"({each}\n)" for each in (self._where, condition) if each]
        return load_compared(
            source,
            self._prices or configured_prices(),
            where=" AND ".join(parts) or None,
            since_ns=since_ns,
            until_ns=until_ns,
        )
