"""What the page of caches shows: what they saved, and why prompts missed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from longpole_analytics.cache.loading import calls_of
from longpole_analytics.cache.report import report
from longpole_analytics.cache.rules import configured_rules
from longpole_analytics.cache.speed import SAVES
from longpole_analytics.cost import priced
from longpole_analytics.price_overrides import configured_prices
from longpole_analytics.wording import sampled_text
from longpole_collector.stores.base import Reader
from longpole_dashboard.model import text
from longpole_dashboard.model.scope import Scope, scope
from longpole_dashboard.model.window import Filters

NO_COUNTS = (
    "No call here says how much of its input came from a cache: the provider, the engine or the "
    "client does not send that count."
)


class Head(NamedTuple):
    """One number on top of the page: what it is, its value, and what it rests on."""

    label: str
    value: str
    basis: str


@dataclass(frozen=True)
class CacheView:
    """Everything on the page.

    Attributes:
        scope: what was loaded.
        document: ``longpole.cache/1``.
        command: what gives it.
    """

    scope: Scope
    document: Mapping[str, Any]
    command: str

    @property
    def num_calls(self) -> int:
        """Calls of the window."""
        return round(self._hits.get("num_calls") or 0)

    @property
    def num_known(self) -> int:
        """Calls that say how much of their input came from a cache."""
        return round(self._hits.get("num_known") or 0)

    @property
    def sampled(self) -> str | None:
        """How the calls were sampled, a sentence; ``None`` where all are here."""
        found = self.document.get("sampling")
        return None if found is None else f"{sampled_text(found, 'calls')}."

    @property
    def _hits(self) -> Mapping[str, Any]:
        return self.document["hits"]["all"] or {}

    def heads(self) -> tuple[Head, ...]:
        """Hits, tokens, time and money saved; a dash where it is not known, and why."""
        hits, n = self._hits, text.counted(self.num_known, "call")
        unpriced = hits.get("num_unpriced") or 0
        priced_by = f"prices: {self.document['prices']['version']}"
        if unpriced:
            priced_by = f"{text.counted(unpriced, 'call')} without a price; {priced_by}"
        return (
            Head("input from a cache", text.percent(hits.get("hit_rate_tokens")), f"of {n}"),
            Head("calls with a hit", text.percent(hits.get("hit_rate_requests")), f"of {n}"),
            Head("tokens read from it", text.count(hits.get("cached_tokens")), f"in {n}"),
            self._time(),
            Head("money saved", usd(hits.get("saved_usd")), priced_by),
        )

    def _time(self) -> Head:
        """What a hit saves, of the largest model of which both measures agree that it does."""
        speeds = self.document["speed"]
        sure = next((each for each in speeds if each["verdict"] == SAVES), None)
        label = "time saved, a hit"
        if sure is None:
            why = speeds[0]["verdict"] or speeds[0]["reason"] if speeds else "no hits"
            return Head(label, text.UNKNOWN, str(why))
        found = sure["by_model"]
        ends = text.span_of(found["low_ms"], found["high_ms"])
        hits = text.counted(sure["num_hits"], "hit")
        return Head(label, text.duration(found["ms"]), f"{sure['model']}, {hits}, 95 %: {ends}")


def cache(filters: Filters, reader: Reader) -> CacheView:
    """The page's content for these filters."""
    chosen = scope(filters, reader, table="calls")
    prices = configured_prices()
    found = calls_of(reader, where=chosen.where, since_ns=chosen.since_ns, until_ns=chosen.until_ns)
    costs = priced(found.calls, prices)
    document = report(costs, found.lookups, prices, configured_rules(), outcomes=found.outcomes)
    return CacheView(chosen, document, chosen.command("cache"))


def usd(value: float | None) -> str:
    """Money: ``$1,234.56``, ``$0.00123``, ``-$3.20``; a dash if unknown."""
    if value is None:
        return text.UNKNOWN
    sign = "-" if value < 0 else ""
    size = abs(value)
    return f"{sign}${size:,.2f}" if size >= 1 or not size else f"{sign}${text.significant(size)}"
