"""How the values of a verdict's evidence are written, in the terminal and on the page."""

from longpole_analytics.wording import milliseconds, percent

_SHARES = frozenset(("model_of_time", "ttft_of_model_time", "misses_for_this_reason"))


def written(metric: str, value: float) -> str:
    """The value with its unit, which the metric's name tells; a correlation has none."""
    if metric.startswith("rank_correlation_"):
        return f"{value:.2f}"
    if metric.endswith("_ms"):
        return milliseconds(value)
    if "share" in metric or metric in _SHARES:
        return percent(value)
    return f"{value:.3g}" if abs(value) < 1_000 else f"{value:,.0f}".replace(",", " ")
