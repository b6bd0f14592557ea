"""What a provider's own account of a call says that it cost, in US dollars."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

_TICKS_PER_USD: Final = 10**10
"""xAI counts in these."""


def reported_cost(usage: Mapping[str, Any]) -> float | None:
    """The cost in a usage record; ``None`` where it tells none.

    OpenRouter says ``cost``: what it charged its customer, which with the customer's own key
    (``is_byok``) is its fee only; what the provider behind it charged stands beside that. xAI says
    ``cost_in_usd_ticks``. Perplexity's ``cost`` holds a ``total_cost``.

    Args:
        usage: the record, as a map; what is nested may be maps or objects.
    """
    said = usage.get("cost")
    cost = None if said is None else _dollars(_member(said, "total_cost", said))
    if cost is None:
        said = usage.get("cost_in_usd_ticks")
        ticks = None if said is None else _dollars(said)
        return None if ticks is None else ticks / _TICKS_PER_USD
    if usage.get("is_byok") is not True:
        return cost
    behind = _dollars(_member(usage.get("cost_details"), "upstream_inference_cost"))
    return None if behind is None else cost + behind


def _member(record: Any, name: str, default: Any = None) -> Any:
    if isinstance(record, Mapping):
        return record.get(name, default)
    return getattr(record, name, default)


def _dollars(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and value >= 0 else None
