"""The door for the plug-in that knows what calls cost.

Prices are analytics and come in through the entry-point group ``longpole.pricer``. Here is only
what they are asked: the columns of calls, and cost and version of the prices for each. The store
makes it a function of its views (:func:`register`), so a price that changes changes no file.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
from duckdb.func import ARROW, SPECIAL

from longpole.family import load

_log = logging.getLogger("longpole.collector.pricing")

COLUMNS: Final[Mapping[str, str]] = {
    "provider": "VARCHAR",
    "request_model": "VARCHAR",
    "response_model": "VARCHAR",
    "service_tier": "VARCHAR",
    "start_ns": "BIGINT",
    "input_tokens": "BIGINT",
    "cached_input_tokens": "BIGINT",
    "cache_write_tokens": "BIGINT",
    "cache_write_1h_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "reasoning_tokens": "BIGINT",
    "reported_cost_usd": "DOUBLE",
    "reported_currency": "VARCHAR",
}
"""What a price depends on: columns of a call and their types."""
FUNCTION: Final = "price_of"
"""In SQL: of these columns, in order, a struct of ``cost_usd`` and ``price_version``."""
_SIGNATURE: Final = Signature([Parameter(n, Parameter.POSITIONAL_ONLY) for n in COLUMNS])
_RESULT: Final = {"cost_usd": "DOUBLE", "price_version": "VARCHAR"}


class Priced(NamedTuple):
    """What calls cost, in their order: dollars, and what priced them; null where unknown."""

    cost_usd: pa.Array
    price_version: pa.Array


Price = Callable[[Mapping[str, Any], int], Priced]
"""Prices calls: Arrow columns by the names of :data:`COLUMNS`, and how many calls there are.

Called from any thread, often with 2,048 calls at once.
"""


@dataclass(frozen=True)
class Pricer:
    """A member of the family ``longpole.pricer``.

    ``configure`` reads the configuration, once, when a store is opened or the collector starts.
    What it returns may follow later changes, and goes on with the last that could be used. It
    raises ``UsageError`` on prices that cannot be meant, and then nothing is opened.
    """

    configure: Callable[[], Price]


def configured() -> Price | None:
    """The installed pricer as the configuration has it; ``None`` where there is none.

    Raises:
        UsageError: the configured prices cannot be used.
    """
    try:
        members: Mapping[str, Pricer] = load(None, "PRICER", Pricer)
    except ImportError as error:
        _log.warning("calls get no cost: %s", error)
        return None
    member = next(iter(members.values()), None)
    return None if member is None else _safe(member.configure())


def register(connection: duckdb.DuckDBPyConnection, price: Price | None) -> None:
    """Make :data:`FUNCTION` of a database; without a pricer it gives null."""
    if price is None:
        names = ", ".join(COLUMNS)
        nulls = ", ".join(f"'{name}': NULL::{kind}" for name, kind in _RESULT.items())
        connection.execute(f"CREATE OR REPLACE MACRO {FUNCTION}({names}) AS {{{nulls}}}")
        return

    def of(*columns: pa.ChunkedArray) -> pa.StructArray:
        given = dict(zip(COLUMNS, columns, strict=True))
        return pa.StructArray.from_arrays(list(price(given, len(columns[0]))), list(_RESULT))

    of.__signature__ = _SIGNATURE  # type: ignore[attr-defined]  # it counts the parameters
    connection.create_function(
        FUNCTION,
        of,
        list(COLUMNS.values()),
        duckdb.struct_type(_RESULT),
        type=ARROW,
        null_handling=SPECIAL,
    )


def _safe(price: Price) -> Price:
    """A plug-in's fault costs the costs, not the query or the roll-up."""

    def priced(columns: Mapping[str, Any], num: int) -> Priced:
        try:
            return price(columns, num)
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("%d calls get no cost", num)
            return Priced(pa.nulls(num, pa.float64()), pa.nulls(num, pa.string()))

    return priced
