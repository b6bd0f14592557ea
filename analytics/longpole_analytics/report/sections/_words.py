"""Numbers and names as every section writes them."""

from typing import Any

from longpole_analytics.wording import milliseconds, percent, where_text


def ms(value: float | None, missing: str = "-") -> str:
    """Milliseconds, or that they are not known."""
    return missing if value is None else milliseconds(value)


def change_ms(value: float | None) -> str:
    """A change in milliseconds with its sign."""
    return "-" if value is None else f"{'+' if value > 0 else ''}{milliseconds(value)}"


def share(value: float | None) -> str:
    """A share of 1 as percent: with a digit more where whole ones would say too little."""
    if value is None:
        return "unknown"
    return percent(value) if 0.1 <= value < 0.995 or value in (0, 1) else f"{100 * value:.3g} %"


def count(value: float | None) -> str:
    """A number of things, thousands set apart."""
    return "-" if value is None else f"{value:,.10g}".replace(",", " ")


def usd(value: float | None) -> str:
    """Dollars."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if abs(value) >= 1 or value == 0 else f"${value:.3g}"


def hours(value: float | None) -> str:
    """Hours, in minutes or seconds where they are short."""
    if value is None:
        return "unknown"
    if value >= 1:
        return f"{value:.3g} h"
    return f"{60 * value:.3g} min" if value >= 1 / 60 else f"{3600 * value:.3g} s"


def slice_text(cause: dict[str, Any]) -> str:
    """The slice of a cause; its versioned route where the slice does not name it."""
    return where_text({name: value or "(none)" for name, value in cause["where"].items()})


def route_text(cause: dict[str, Any]) -> str:
    """The route of a cause and its versions."""
    versions = [version for version in cause["route_versions"] if version]
    several = "several versions" if len(versions) > 1 else "".join(versions)
    return " ".join(part for part in (cause["route"] or "(several)", several) if part)
