"""The same store on ClickHouse: a server's, a cluster's, or one in process for tests.

Needs the extra ``longpole[clickhouse]``; nothing in here is imported before an address of this
store is opened (:func:`is_address`).
"""

from typing import Final

SCHEMES: Final = ("clickhouse://", "clickhouses://", "chdb://")
"""Plain HTTP, HTTP over TLS, and the engine in this process."""


def is_address(text: str) -> bool:
    """Whether a text names a store of this kind."""
    return text.startswith(SCHEMES)
