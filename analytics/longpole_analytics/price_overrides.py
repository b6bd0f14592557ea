"""A user's own prices: the table ``[prices."provider/model"]`` of ``longpole.toml``.

    [prices."openai/gpt-5.4"]
    input = 2.00
    cached_input = 0.20
    output = 12.00

    [[prices."vllm/qwen-*"]]
    service_tier = "batch"
    above_tokens = 200000
    valid_from = 2026-11-01
    hours_utc = "16:30-00:30"
    input = 0.05
    output = 0.10

Prices are US dollars a million tokens. A name that ends in ``*`` means all that start so.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from longpole.config import find_file
from longpole.errors import UsageError
from longpole_analytics.prices import CLASSES, STANDARD, TIER_NAMES, Prices, Row, shipped

CONDITIONS: Final = ("service_tier", "above_tokens", "valid_from", "valid_to", "hours_utc")
_KEYS: Final = (*CLASSES, *CONDITIONS, "currency")
_DAY_MINUTES: Final = 1440
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]|24):([0-5]\d)")


def configured_prices(file: Path | None = None) -> Prices:
    """The prices that came with the package, with the user's own.

    Args:
        file: the configuration file; ``None`` is the nearest ``longpole.toml``, if there is one.

    Raises:
        UsageError: the file cannot be read, or says what cannot be.
    """
    file = file or find_file()
    if file is None:
        return shipped()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    return with_overrides(shipped(), text, file.name)


def with_overrides(prices: Prices, text: str, file: str = "longpole.toml") -> Prices:
    """The price table with the prices that a configuration file states.

    Args:
        prices: the table so far; own prices in it are replaced.
        text: the whole file.
        file: what it is called in a message.

    Raises:
        UsageError: the file is broken, or a price is; names line and key.
    """
    try:
        table = tomllib.loads(text).get("prices", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}") from error
    if not isinstance(table, dict):
        raise UsageError(f'{file}: [prices] holds tables, as in [prices."provider/model"]')
    rows: list[Row] = []
    for name, entry in table.items():
        try:
            rows += [row for part in _parts(entry) for row in _rows(name, part)]
        except _BadPriceError as error:
            line = _line(text, name, error.key)
            raise UsageError(f'{file}, line {line}: [prices."{name}"] {error}') from error
    version = f"{file} {sha256(repr(rows).encode()).hexdigest()[:8]}" if rows else None
    return prices.with_own(rows, version)


def renewed(last: Prices, text: str, file: str = "longpole.toml") -> tuple[Prices, str | None]:
    """The table with the file's prices, or the last one with what is wrong with the file."""
    try:
        return with_overrides(last, text, file), None
    except UsageError as error:
        return last, str(error)


class _BadPriceError(Exception):
    def __init__(self, key: str | None, message: str) -> None:
        super().__init__(message)
        self.key = key


def _parts(entry: object) -> list[Mapping[str, Any]]:
    parts: list[Any] = entry if isinstance(entry, list) else [entry]
    if not all(isinstance(part, dict) for part in parts):
        raise _BadPriceError(None, "is a table of prices, as input = 1.25")
    return parts


def _rows(name: str, entry: Mapping[str, Any]) -> Iterator[Row]:
    provider, slash, model = name.partition("/")
    if not provider or not slash or not model:
        raise _BadPriceError(None, 'is called by provider and model, as in "openai/gpt-5.4"')
    for key in entry:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_KEYS)}"
            raise _BadPriceError(key, f"{key}: no such key{hint}")
    if str(entry.get("currency", "USD")).upper() != "USD":
        raise _BadPriceError("currency", f"currency: prices are in USD, not {entry['currency']}")
    classes = [key for key in CLASSES if key in entry]
    if not classes:
        raise _BadPriceError(None, f"names no price: give one of {', '.join(CLASSES)}")
    tier = entry.get("service_tier", STANDARD)
    if not isinstance(tier, str):
        raise _BadPriceError("service_tier", "service_tier: is text, as in 'priority'")
    above = entry.get("above_tokens", 0)
    if type(above) is not int or above < 0:
        raise _BadPriceError("above_tokens", "above_tokens: is a number of tokens from 0")
    days = tuple(_day(entry, key) for key in ("valid_from", "valid_to"))
    if days[0] and days[1] and days[0] >= days[1]:
        raise _BadPriceError("valid_to", "valid_to: is after valid_from")
    for minutes in _minutes(entry):
        for key in classes:
            price = entry[key]
            if type(price) not in (int, float) or not 0 <= price < float("inf"):
                raise _BadPriceError(
                    key, f"{key}: {price!r} is no price: write dollars a million tokens, as 1.25"
                )
            tier_name = TIER_NAMES.get(tier.lower(), tier.lower())
            period = (*days, *minutes)
            yield Row._make((provider, model, key, tier_name, above, *period, float(price)))


def _day(entry: Mapping[str, Any], key: str) -> date | None:
    found = entry.get(key)
    if found is None or type(found) is date:
        return found
    raise _BadPriceError(key, f"{key}: {found!r} is no day: write 2026-11-01, without quotes")


def _minutes(entry: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Minutes of the UTC day, in two parts if they go past midnight."""
    said = entry.get("hours_utc")
    if said is None:
        return [(0, _DAY_MINUTES)]
    found = _HOURS.fullmatch(said) if isinstance(said, str) else None
    if found is None:
        raise _BadPriceError("hours_utc", f"hours_utc: {said!r} is no span: write '16:30-00:30'")
    start, end = (60 * int(found[at]) + int(found[at + 1]) for at in (1, 3))
    if end > _DAY_MINUTES or start == end:
        raise _BadPriceError("hours_utc", f"hours_utc: {said!r} is no span of a day")
    if start < end:
        return [(start, end)]
    return [(start, _DAY_MINUTES), *([(0, end)] if end else [])]


def _line(text: str, name: str, key: str | None) -> int:
    """The line of a key under its header, else of the header; 1 if it is written otherwise."""
    header = re.compile(rf"\s*\[\[?\s*prices\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*\]")
    wanted = None if key is None else re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    found, is_inside = 1, False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("["):
            is_inside = header.match(line) is not None
            if is_inside:
                found = number
        elif is_inside and wanted is not None and wanted.match(line):
            return number
    return found
