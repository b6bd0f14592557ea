"""What the collector finds under ``longpole.pricer``: the shipped prices and the user's own.

Light to import, as every collector imports it.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np
import pyarrow as pa

from longpole.config import find_file
from longpole_analytics.price_overrides import configured_prices, renewed
from longpole_analytics.prices import shipped
from longpole_analytics.pricing import tariff
from longpole_collector.pricing import Priced, Pricer

_log = logging.getLogger("longpole.analytics.pricer")
LOOK_S: Final = 1.0
"""The user's file is looked at this often, at most."""

_Stamp = tuple[Path, int, int] | None


class ConfiguredPrices:
    """Prices calls by the table in force, which follows the nearest ``longpole.toml``.

    A file that cannot be used, or that is gone, leaves the last good prices in force, and the log
    says so once.
    """

    def __init__(self) -> None:
        """Read the prices.

        Raises:
            UsageError: the file cannot be used.
        """
        self._folder = Path.cwd()
        self._stamp = _stamp_of(find_file(self._folder))
        # the shipped prices are read when they are first asked for, and once a process
        self._prices = configured_prices(self._stamp[0]) if self._stamp else None
        self._next_s = monotonic() + LOOK_S

    def __call__(self, columns: Mapping[str, Any], num: int) -> Priced:
        """As :data:`longpole_collector.pricing.Price`."""
        if monotonic() >= self._next_s:
            self.look()
        costs = tariff(self._prices or shipped()).costs(columns, num)
        is_unknown = np.isnan(costs.cost_usd)
        versions = pa.array(costs.versions, pa.string()).take(pa.array(costs.version))
        return Priced(pa.array(costs.cost_usd, mask=is_unknown), versions)

    def look(self) -> None:
        """Take the file's prices if it has changed."""
        self._next_s = monotonic() + LOOK_S
        stamp = _stamp_of(find_file(self._folder))
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if stamp is None:
            problem: str | None = "longpole.toml is gone"
        else:
            try:
                text = stamp[0].read_text(encoding="utf-8")
                self._prices, problem = renewed(self._prices or shipped(), text, stamp[0].name)
            except (OSError, UnicodeDecodeError) as error:
                problem = f"cannot read {stamp[0]}: {error}"
        if problem is not None:
            _log.warning("the last good prices stay in force: %s", problem)


def _stamp_of(file: Path | None) -> _Stamp:
    """What changes when a file does."""
    try:
        found = None if file is None else file.stat()
    except OSError:
        found = None
    return None if file is None or found is None else (file, found.st_mtime_ns, found.st_size)


PRICER = Pricer(ConfiguredPrices)
