"""The thresholds of the cache's findings: ``[analytics.cache]`` of ``longpole.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from longpole.config import find_file, read_file
from longpole.errors import UsageError


@dataclass(frozen=True)
class CacheRules:
    """What counts as what.

    Attributes:
        ttl_s: how long a prefix lives after its last use, where the provider is not listed.
        provider_ttl_s: the same by provider id of the price table.
        long_ttl_s: of writes that were paid to live longer.
        min_tokens: shortest prompt that is cached, where the provider is not listed.
        provider_min_tokens: the same by provider id.
        models_without_cache: ``provider/model`` of the price table.
        slack_tokens: a hit that much short of what it shares is none the less whole: caches
            count in steps.
        volatile_share: a stable segment that differs in so many of a version's requests is
            volatile,
        volatile_distinct: if that many of its values are different.
        hot_per_minute: requests a minute for one key above which a provider spreads them.
        hot_drop: fall of the hit rate by requests that makes a busy key hot.
        max_disagreement: of the two measures of time saved, as a share of the larger.
        min_requests: hits, and misses, that a measure of time saved needs.
        stable_segments: segments meant to be the same from call to call, in the order sent.
    """

    ttl_s: float = 300.0
    provider_ttl_s: Mapping[str, float] = field(
        default_factory=lambda: {"google": 3600.0, "deepseek": 3600.0}
    )
    long_ttl_s: float = 3600.0
    min_tokens: int = 1024
    provider_min_tokens: Mapping[str, int] = field(
        default_factory=lambda: {"mistral": 64, "deepseek": 64, "vllm": 16, "sglang": 1}
    )
    models_without_cache: tuple[str, ...] = ()
    slack_tokens: int = 128
    volatile_share: float = 0.5
    volatile_distinct: float = 0.8
    hot_per_minute: float = 15.0
    hot_drop: float = 0.05
    max_disagreement: float = 0.5
    min_requests: int = 20
    stable_segments: tuple[str, ...] = ("tools", "system", "schema", "examples", "reference")

    def ttl_of(self, provider: str | None) -> float:
        """Seconds a prefix lives at a provider."""
        return self.provider_ttl_s.get(provider or "", self.ttl_s)

    def min_of(self, provider: str | None) -> int:
        """Tokens of the shortest prompt that a provider caches."""
        return self.provider_min_tokens.get(provider or "", self.min_tokens)


def rules_from(table: Mapping[str, Any]) -> CacheRules:
    """The defaults with what a table of the configuration says instead.

    Raises:
        UsageError: an unknown key, or a value of another kind than the default's.
    """
    defaults = CacheRules()
    known = {each.name: getattr(defaults, each.name) for each in fields(CacheRules)}
    changed: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"[analytics.cache] {key}: no such key; there are {', '.join(known)}")
        kind = type(known[key])
        given: Any = tuple(value) if kind is tuple and isinstance(value, list) else value
        given = float(given) if kind is float and type(given) is int else given
        if type(given) is not kind:
            raise UsageError(f"[analytics.cache] {key}: {value!r} is no {kind.__name__}")
        changed[key] = {**known[key], **given} if kind is dict else given
    return replace(defaults, **changed)


def configured_rules() -> CacheRules:
    """The thresholds with those of ``[analytics.cache]`` in ``longpole.toml``.

    Raises:
        UsageError: as of :func:`rules_from`, or the entry is no table.
    """
    table: Any = read_file(find_file()).get("analytics", {}).get("cache", {})
    if not isinstance(table, dict):
        raise UsageError("[analytics] cache: expected a table, as in [analytics.cache]")
    return rules_from(table)
