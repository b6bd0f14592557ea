"""What the diagnosis says of a run: the function behind ``longpole shapes``, given the traces."""

from typing import Final, NamedTuple

import polars as pl

from longpole.vocab import Stage
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.loading import Source, load_requests, select
from longpole_analytics.shape_causes import judged
from longpole_analytics.shapes import Shape
from longpole_dashboard.lab.play import BASELINE, SHAPE, Played
from longpole_dashboard.lab.recipes.prefix import PREFIX_LIFE_S

PROVIDER: Final = CacheRules(ttl_s=PREFIX_LIFE_S, min_tokens=16, slack_tokens=256)
"""What the lab's provider documents of its cache, the same for all recipes."""
_LEAST_MS: Final = 0.05


class StageMeans(NamedTuple):
    """A stage's mean milliseconds on the critical path, on both sides."""

    stage: str
    before_ms: float
    now_ms: float


class Verdict(NamedTuple):
    """What is said of a run, and the picture it was said of."""

    shape: Shape
    stages: tuple[StageMeans, ...]


def judge(url: str, played: Played) -> Verdict:
    """The shape of a run's second side against its first, all of it from the store.

    Args:
        url: the collector.
        played: when which side ran.
    """
    source = Source(url=url)
    since_ns, until_ns = played.window
    every = load_requests(source, since_ns=since_ns, until_ns=until_ns, has_facts=True)
    before, now = (select(every, played.condition(side)) for side in (BASELINE, SHAPE))
    (found,) = judged((before, now), source, cache_rules=PROVIDER)
    means = [StageMeans(s.value, _mean(before, s), _mean(now, s)) for s in Stage]
    return Verdict(found, tuple(m for m in means if max(m.before_ms, m.now_ms) >= _LEAST_MS))


def _mean(side: pl.DataFrame, stage: Stage) -> float:
    found = side[f"{stage.value}_ms"].fill_null(0.0).mean()
    return float(found) if isinstance(found, float) else 0.0
