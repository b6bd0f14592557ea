"""When writing a prefix to a cache pays. Prices are per token, or all per million.

With U for a token that is neither, W for one written and R for one read: a write and n reads
instead of n + 1 plain prompts pay if W + n R < (n + 1) U.
"""

import math
from typing import NamedTuple


class BreakEven(NamedTuple):
    """``min_reads``: fewest whole reads after a write that pay; ``None`` if none do.

    ``threshold``: (W - U) / (U - R), the number of reads to be exceeded; ``None`` where reads
    are not cheaper than plain input.
    """

    min_reads: int | None
    threshold: float | None


def break_even(uncached: float, write: float, read: float) -> BreakEven:
    """How often a prefix must be read to pay for its write."""
    threshold = (write - uncached) / (uncached - read) if uncached > read else None
    if write < uncached:
        return BreakEven(0, threshold)
    if threshold is None:
        return BreakEven(None, None)
    # A hair of rounding must not add a read: 4.000000000000001 is 4.
    return BreakEven(math.floor(round(threshold, 9)) + 1, threshold)


def expected_reads(rate_per_s: float, ttl_s: float, *, is_sliding: bool) -> float:
    """Reads after one write before it expires, if requests come as a Poisson process.

    Args:
        rate_per_s: requests a second for the prefix.
        ttl_s: life after the write, or with ``is_sliding`` after the last use.
        is_sliding: a read renews the life.

    Returns:
        exp(rate x ttl) - 1 if sliding, else rate x ttl; infinite beyond what a float holds.
    """
    reads = rate_per_s * ttl_s
    if not is_sliding:
        return reads
    return math.expm1(reads) if reads < math.log(1e300) else math.inf


def break_even_rate(threshold: float, ttl_s: float, *, is_sliding: bool) -> float:
    """Requests a second for one prefix at which its writes pay on the average."""
    return max(0.0, math.log1p(threshold) if is_sliding else threshold) / ttl_s
