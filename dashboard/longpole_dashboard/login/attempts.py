"""How often a password may be tried: per address and per name, forgotten after a while."""

import time
from collections import OrderedDict
from ipaddress import ip_address, ip_network
from typing import Final

WINDOW_S: Final = 900.0
MAX_FAILED: Final = 10
"""Failed tries within the window, of one address or of one name from wherever."""
_MAX_KEPT: Final = 10_000


class Attempts:
    """Failed tries in memory; the oldest are forgotten first when there are too many."""

    def __init__(self) -> None:
        self._tried: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, *whose: str) -> float:
        """Seconds until another try; 0 if it may be now."""
        return max(self._wait_s(each) for each in whose)

    def begin(self, *whose: str) -> None:
        """Count a try as failed before its outcome is known, so that none run side by side."""
        for each in whose:
            self._tried.setdefault(each, []).append(time.monotonic())
            self._tried.move_to_end(each)
        while len(self._tried) > _MAX_KEPT:
            self._tried.popitem(last=False)

    def succeeded(self, *whose: str) -> None:
        """The last try was none of the failed ones."""
        for each in whose:
            if tried := self._tried.get(each):
                tried.pop()

    def _wait_s(self, whose: str) -> float:
        now_s = time.monotonic()
        tried = [at_s for at_s in self._tried.get(whose, ()) if now_s - at_s < WINDOW_S]
        if whose in self._tried:
            self._tried[whose] = tried
        return tried[-MAX_FAILED] + WINDOW_S - now_s if len(tried) >= MAX_FAILED else 0.0


def network_of(address: str) -> str:
    """What counts as one address: an IPv4 address, or the 64 leading bits of an IPv6 one."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ip_network((address, 64), strict=False))
