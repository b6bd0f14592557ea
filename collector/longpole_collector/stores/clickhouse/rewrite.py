"""One set of queries: what is written for DuckDB, said in ClickHouse's words.

A statement is parsed by sqlglot, its parameters become literals, and a small table of rules
(:mod:`~longpole_collector.stores.clickhouse.rules`) puts what the two engines say or mean
differently. What is not known to mean the same on both is refused by its name, so that no answer
is silently another one.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from longpole.errors import BadInput
from longpole_collector.stores.base import Params, Value
from longpole_collector.stores.clickhouse import rules
from longpole_collector.stores.clickhouse.schema import LEAN, NOT_LEAN

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what is refused here
_STATEMENTS = (exp.Select, exp.SetOperation)


class OutsideSubset(BadInput):
    """A statement that only the local store can answer."""


def rewrite(query: str, params: Params = ()) -> str:
    """A read-only statement over the views in ClickHouse's words.

    Args:
        query: one SELECT in DuckDB's words, within the portable subset.
        params: values for its ``?``, ``$1`` or ``$name``.

    Raises:
        OutsideSubset: it uses what ClickHouse says otherwise or not at all.
        BadInput: it cannot be read, or a parameter is missing.
    """
    tree = _parsed(query).copy()
    _fill(tree, params)
    _lean(tree)
    return rules.to_clickhouse(tree).sql(dialect="clickhouse")


@lru_cache(maxsize=512)
def _parsed(query: str) -> exp.Expr:
    try:
        numbered = _numbered(query)
        found = [tree for tree in sqlglot.parse(numbered, read="duckdb") if tree is not None]
    except (SqlglotError, RecursionError) as error:
        line = str(error).split("\n", 1)[0]
        raise BadInput(f"the statement cannot be read: {line}") from error
    if len(found) != 1:
        raise BadInput(f"one statement at a time, not {len(found)}")
    tree = found[0]
    if not isinstance(tree.unnest(), _STATEMENTS):
        raise OutsideSubset(f"a ClickHouse store answers SELECT, not {tree.key.upper()}")
    for word in _unknown(tree):
        raise OutsideSubset(
            f"{word} is outside what this ClickHouse store answers: leave it out, or ask a copy "
            "in a data folder (docs/clickhouse.md)"
        )
    return tree


def _numbered(query: str) -> str:
    """The statement with ``$1``, ``$2`` ... in place of its question marks."""
    marks = [
        token.start
        for token in sqlglot.tokenize(query, read="duckdb")
        if token.token_type == TokenType.PLACEHOLDER and token.text == "?"
    ]
    for number, at in sorted(enumerate(marks, start=1), reverse=True):
        query = f"{query[:at]}${number}{query[at + 1 :]}"
    return query


def _unknown(tree: exp.Expr) -> Iterator[str]:
    for node in tree.walk():
        word = rules.refused(node)
        if word is not None:
            yield word


def _lean(tree: exp.Expr) -> None:
    """Read calls without a join where nothing is asked that needs it."""
    is_all = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    if is_all or any(column.name.lower() == NOT_LEAN for column in tree.find_all(exp.Column)):
        return
    made = {common.alias for common in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if table.name.lower() == "calls" and "calls" not in made:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier("calls")))
            table.set("this", exp.to_identifier(LEAN))


def _fill(tree: exp.Expr, params: Params) -> None:
    """Put the parameters' values in their places."""
    for place in [*tree.find_all(exp.Placeholder, exp.Parameter)]:
        name = place.name
        if isinstance(params, Mapping):
            if name not in params:
                raise BadInput(f"no value for parameter ${name}")
            value = params[name]
        else:
            number = int(name) if name.isdigit() else 0
            if not 0 < number <= len(params):
                raise BadInput(f"no value for parameter ${name}")
            value = params[number - 1]
        place.replace(literal(value))


def literal(value: Value | Any) -> exp.Expr:
    """A value as ClickHouse reads it; whole numbers have 64 bits as in a parameter of DuckDB."""
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise BadInput(f"parameter {value} has more than 64 bits")
        return rules.native("toInt64", exp.Literal.string(str(value)))
    if isinstance(value, float):
        if math.isfinite(value):
            return rules.native("toFloat64", exp.Literal.string(repr(value)))
        return rules.native("toFloat64", exp.Literal.string(str(value)))
    return exp.Literal.string(str(value))
