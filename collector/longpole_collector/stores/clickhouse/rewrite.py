"""One set of queries: what is written for DuckDB, said in ClickHouse's words.

A statement is parsed by sqlglot, its parameters become literals, and a small table of rules
(:mod:`~longpole_collector.stores.clickhouse.rules`) puts what the two engines say or mean
differently. What is not known to mean the same on both is refused by its name, so that no answer
is silently another one.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from longpole.errors import BadInput
from longpole_collector.stores.base import Params, Value
from longpole_collector.stores.clickhouse import rules
from longpole_collector.stores.clickhouse.schema import (
    COUNTING,
    LEAN,
    NEAR,
    NOT_LEAN,
    STRETCH_NS,
)

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what is refused here
_STATEMENTS = (exp.Select, exp.SetOperation)
_SIGNS: Mapping[type[exp.Expr], type[exp.Binary]] = {
    exp.GTE: exp.GTE, exp.GT: exp.GTE, exp.LTE: exp.LTE, exp.LT: exp.LTE,
}  # fmt: skip
"""Comparisons, and what follows from them for the stretches that two starts lie in."""
_EVER = tuple(rules.native("toInt64", exp.Literal.string(str(ns))) for ns in (-(1 << 62), 1 << 62))
"""Before and after all starts, with room for an hour."""


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
    made = rules.to_clickhouse(tree)
    _narrow(made)
    return made.sql(dialect="clickhouse")


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


def _narrow(tree: exp.Expr) -> None:
    """Say of the stretches what a WHERE says of starts: ClickHouse does not see that it follows.

    Only so does it read the blocks of a window alone.
    """
    for where in tree.find_all(exp.Where):
        told: list[exp.Binary] = []
        for each in where.this.flatten() if isinstance(where.this, exp.And) else (where.this,):
            for sign, edge in _edges(each):
                if each.this.name == "start_ns" and _is_fixed(edge):
                    start, end = (
                        rules.native("intDiv", side.copy(), STRETCH_NS)
                        for side in (each.this, edge)
                    )
                    told.append(sign(this=start, expression=end))
        if not told or _counts_near(where.parent, told):
            continue
        where.set("this", exp.and_(where.this, *told, copy=False))


def _counts_near(select: exp.Expr | None, told: Sequence[exp.Binary]) -> bool:
    """Let a view that counts count the window alone; whether the SELECT reads such a view."""
    source = select.args.get("from_") if select is not None else None
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or table.name.lower() not in COUNTING:
        return False
    if any(common.alias == table.name for common in table.root().find_all(exp.CTE)):
        return False
    given = {"since": _EVER[0], "until": _EVER[1]}
    for each in told:  # the later one of two is as true as the earlier one
        given["since" if isinstance(each, exp.GTE) else "until"] = each.expression.expressions[0]
    named = [exp.EQ(this=exp.column(name), expression=edge) for name, edge in given.items()]
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
    table.set("this", exp.Anonymous(this=table.name.lower() + NEAR, expressions=named))
    return True


def _edges(node: exp.Expr) -> Iterator[tuple[type[exp.Binary], exp.Expr]]:
    """What a condition on starts says of stretches."""
    if isinstance(node, exp.Between):
        yield exp.GTE, node.args["low"]
        yield exp.LTE, node.args["high"]
    elif type(node) in _SIGNS:
        yield _SIGNS[type(node)], node.expression


def _is_fixed(node: exp.Expr) -> bool:
    """Whether it is a whole number without columns."""
    if isinstance(node, exp.Literal):
        return node.name.isdigit() and not node.is_string
    if isinstance(node, exp.Anonymous):
        return node.name == "toInt64"
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_fixed(node.this)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return _is_fixed(node.this) and _is_fixed(node.expression)
    return False


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
