"""How numbers and names are written for people, the same in every text."""

import unicodedata
from collections.abc import Mapping
from typing import Any


def milliseconds(value: float) -> str:
    """A duration with three significant digits: ms under 10 s, s above."""
    if abs(value) >= 10_000:
        return f"{_three_digits(value / 1000)} s"
    return f"{_three_digits(value)} ms"


def percent(share: float) -> str:
    """A share of 1 as whole percent."""
    return f"{100 * share:.0f} %"


def quantile_name(q: float) -> str:
    """The usual name of a quantile: 0.95 is p95."""
    return f"p{100 * q:g}"


def where_text(where: Mapping[str, str]) -> str:
    """A slice as ``column=value, ...``; empty for no slice."""
    return ", ".join(f"{column}={value}" for column, value in where.items())


def sampled_text(sampling: Mapping[str, Any], noun: str) -> str:
    """What a document's ``sampling`` says, as a sentence without its full stop.

    Args:
        sampling: as :func:`longpole_analytics.weighted.sampling` gives it.
        noun: what was sampled, in the plural.
    """
    stood = f"{sampling['num_stood_for']:,.0f}".replace(",", " ")
    said = f"{sampling['num_kept']} {noun} that were kept stand for {stood}"
    parts = ", ".join(part.replace("_", " ") for part in sampling["of_kept"])
    return f"{said}; told by the kept ones alone: {parts}" if parts else said


def printable(text: str) -> str:
    """Text from a span without control, format or unassigned characters.

    Names in spans come from anywhere; in a terminal they must not move the cursor, change
    colours, or turn the direction of the line.
    """
    return "".join(
        " " if char in "\t\n\r" else "" if unicodedata.category(char)[0] == "C" else char
        for char in text
    )


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude < 10:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    if magnitude < 100:
        return f"{value:.1f}".removesuffix(".0")
    return f"{float(f'{value:.3g}'):,.0f}".replace(",", " ")
