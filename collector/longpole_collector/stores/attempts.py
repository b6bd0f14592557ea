"""Attempts of a call that an HTTP client's spans below it tell, whatever library told the call.

A library that retries by itself shows one span of the call; whoever traces its HTTP client too
sees one more for each attempt. The last request and those before it that failed, all sent to one
address, are the attempts; another request below the call (a token fetched, a page) is none.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
_METHODS: Final = ("http.request.method", "http.method")
_URLS: Final = ("url.full", "http.url")
_NONE: Final = -1


class Attempts(NamedTuple):
    """What the requests below some calls tell: the calls' rows, attempts and time before the last.

    The time is from the start of the first attempt to that of the last.
    """

    rows: Ints
    num: Ints
    retry_ns: Ints


NO_ATTEMPTS: Final = Attempts(*(np.zeros(0, np.int64) for _ in Attempts._fields))


def find_attempts(
    spans: pa.Table,
    parents: Callable[[Ints], Ints],
    calls_above: Callable[[Ints], Ints],
    is_call: npt.NDArray[np.bool_],
    addresses: Callable[[Ints], Sequence[str | None]],
) -> Attempts:
    """The calls among these spans that were tried more often than is known.

    Args:
        spans: columns of the span table.
        parents: the rows of some spans' parents; -1 where there is none.
        calls_above: the rows of the nearest model calls above some spans; likewise.
        is_call: which rows are model calls.
        addresses: where some spans sent a POST to; ``None`` for what is none. Asked only of
            several requests below one call, of which one failed.
    """
    is_request = pc.and_(pc.equal(spans["kind"], "client"), spans["operation"].is_null())
    requests = np.flatnonzero(is_request.to_numpy(zero_copy_only=False) & ~is_call)
    has_failed = pc.equal(spans["status"], "error").to_numpy(zero_copy_only=False)
    if not has_failed[requests].any():
        return NO_ATTEMPTS
    # a client may be traced in two layers: the outer one counts
    requests = requests[~np.isin(parents(requests), requests)]
    above = calls_above(requests)
    is_client = is_call & ~spans["is_engine"].to_numpy(zero_copy_only=False)
    is_below = (above != _NONE) & is_client[above]
    requests, above = requests[is_below], above[is_below]
    failing = np.unique(above[has_failed[requests]])
    calls, counts = np.unique(above, return_counts=True)
    of_many = np.isin(above, calls[np.isin(calls, failing) & (counts > 1)])
    requests, above = requests[of_many], above[of_many]
    if not len(requests):
        return NO_ATTEMPTS
    starts = spans["start_ns"].to_numpy()
    below: dict[int, list[tuple[int, bool, str]]] = defaultdict(list)
    for request, call, address in zip(requests, above, addresses(requests), strict=True):
        if address is not None:
            below[int(call)].append((int(starts[request]), bool(has_failed[request]), address))
    known = spans["num_attempts"]
    found: list[tuple[int, int, int]] = []
    for call, sent in below.items():
        first_ns, last_ns, num = _last_run(sorted(sent))
        if num > max(known[call].as_py() or 1, 1):
            found.append((call, num, last_ns - first_ns))
    if not found:
        return NO_ATTEMPTS
    return Attempts(*np.array(found, np.int64).T)


def _last_run(sent: Sequence[tuple[int, bool, str]]) -> tuple[int, int, int]:
    """Start of the first and of the last attempt, and how many there are.

    Args:
        sent: start, whether it failed, and address of each request, in order.
    """
    last_ns, _, address = sent[-1]
    first_ns, num = last_ns, 1
    for start_ns, has_failed, where in reversed(sent[:-1]):
        if where != address:
            continue
        if not has_failed:
            break
        first_ns = start_ns
        num += 1
    return first_ns, last_ns, num


def address_of(attributes: str) -> str | None:
    """Where a span of these attributes (JSON text) sent a POST to; ``None`` if it is none."""
    found = json.loads(attributes)
    if next((found[key] for key in _METHODS if key in found), "") != "POST":
        return None
    url: str = next((found[key] for key in _URLS if key in found), "")
    return url.partition("?")[0] or None
