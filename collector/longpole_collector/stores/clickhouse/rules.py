"""What DuckDB and ClickHouse say differently: the table of rules, one function an entry.

A rule takes a node of the parsed statement whose parts are rewritten already, and returns what
stands for it. A function that is neither in :data:`RULES`, :data:`NAMED` nor :data:`ALIKE` is
refused.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from sqlglot import exp

from longpole_collector.stores.clickhouse.shape import reshape
from longpole_collector.stores.views import GAMMA

Node = exp.Expr
Rule = Callable[[Any], Node]
_BIG: Final = 2**31
_TYPES: Final = exp.DataType.Type
_STRINGS: Final = frozenset((_TYPES.VARCHAR, _TYPES.TEXT))
_WHOLE: Final = frozenset((_TYPES.BIGINT, _TYPES.INT, _TYPES.INT128))
_REAL: Final = frozenset((_TYPES.DOUBLE,))
_TRUTH: Final = frozenset((_TYPES.BOOLEAN,))
_NUMBERS: Final = ("toInt64", "toFloat64")
_DONE: Final = "is_whole"
"""Mark of a node that took the FILTER and the OVER around it into itself."""


def native(name: str, *arguments: Node | int) -> exp.Anonymous:
    """A call of one of ClickHouse's functions."""
    given = [exp.Literal.number(each) if isinstance(each, int) else each for each in arguments]
    return exp.Anonymous(this=name, expressions=given)


def to_clickhouse(tree: Node) -> Node:
    """A statement in ClickHouse's words; the tree given is used up."""
    reshape(tree)
    root = exp.Paren(this=tree)  # so that the top has a parent too
    for node in [*tree.walk(bfs=False)][::-1]:  # parts before wholes
        rule = NAMED.get(node.name.lower()) if type(node) is exp.Anonymous else None
        rule = rule or RULES.get(type(node))
        if rule is not None:
            made = rule(node)
            if made is not node:
                node.replace(made)
    found: Node = root.this
    return found


def refused(node: Node) -> str | None:
    """What a node is called that is in no list; ``None`` if it may stand."""
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        return None if name in NAMED else f"function {name}"
    if isinstance(node, exp.Cast):
        known = _STRINGS | _WHOLE | _REAL | _TRUTH
        return None if node.to.this in known else f"a cast to {node.to.sql(dialect='duckdb')}"
    if isinstance(node, exp.Func) and type(node) not in RULES and not isinstance(node, ALIKE):
        return f"function {node.sql_name().lower()}"
    if isinstance(node, exp.Order) and isinstance(node.parent, exp.Func):
        return "ORDER BY inside a function"
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        return "a table function"
    if isinstance(node, exp.Identifier) and "\\" in node.name:
        return "a name with a backslash"  # over there it would hide the quote behind it
    if isinstance(node, exp.Star) and _is_in_union_by_name(node):
        return "* in a UNION BY NAME"
    return node.key.upper() if isinstance(node, _NEVER) else None


def _is_in_union_by_name(star: exp.Star) -> bool:
    select = star.parent_select
    above = select.parent if select is not None and star.parent is select else None
    return isinstance(above, exp.SetOperation) and bool(above.args.get("by_name"))


# --- parts of rules ----------------------------------------------------------------------------
def _gathered(node: Node, *values: Node) -> Node:
    """All values of a group as a list, under the FILTER and the OVER that the node has.

    Nulls are left out.
    """
    name, given = "groupArray", [value.copy() for value in values]
    outer = node.parent
    if isinstance(outer, exp.Filter):
        name, given = "groupArrayIf", [*given, outer.expression.this.copy()]
        outer = outer.parent
    made: Node = native(name, *given)
    if isinstance(outer, exp.Window):
        made = exp.Window(this=made, **{
            key: value.copy() if isinstance(value, exp.Expr)
            else [each.copy() for each in value] if isinstance(value, list) else value
            for key, value in outer.args.items() if key != "this"
        })  # fmt: skip
    return made


def _whole(node: Node) -> Node:
    """Mark what has taken the FILTER and the OVER around it into itself."""
    node.meta[_DONE] = True
    return node


def _unwrapped(node: Node) -> Node:
    return node.this if node.this.meta.get(_DONE) else node


def _element(values: Node, place: Node) -> Node:
    """A list's element by its place from 1 on; null outside."""
    return native("arrayElementOrNull", values, place)


def _nearest(values: Node, share: Node) -> Node:
    """Nearest rank of a sorted list, as DuckDB counts it: ``n - floor(n - q n)``, at least 1."""
    num = native("toInt64", native("length", values.copy()))
    if isinstance(share, exp.Literal):
        part = 1 - Fraction(share.name)
        rest = native("intDiv", _times(num, part.numerator), part.denominator)
    else:
        rest = native("toInt64", native("floor", _minus(num, _times(num, share))))
    return _element(values.copy(), native("greatest", 1, _minus(num, rest)))


def _minus(one: Node, other: Node) -> Node:
    return native("minus", one.copy(), other.copy())


def _times(one: Node, other: Node | int) -> Node:
    return native("multiply", one.copy(), other if isinstance(other, int) else other.copy())


def _rounded(value: Node) -> Node:
    """Half away from zero."""
    half = exp.Literal.number("0.5")
    size = native("floor", native("plus", native("abs", value.copy()), half))
    return native("multiply", native("sign", value.copy()), size)


# --- rules -------------------------------------------------------------------------------------
def _disc(node: exp.PercentileDisc | exp.Quantile) -> Node:
    share = node.args.get("quantile") or node.expression
    values = native("arraySort", _gathered(node, node.this))
    if isinstance(share, exp.Array):
        each = [_nearest(values, one) for one in share.expressions]
        return _whole(exp.Array(expressions=each))
    return _whole(_nearest(values, share))


def _cont(node: exp.PercentileCont | exp.Median) -> Node:
    share = node.args.get("expression") or exp.Literal.number("0.5")
    is_many = isinstance(share, exp.Array)
    return exp.ParameterizedAgg(
        this=exp.to_identifier("quantilesExactInclusive" if is_many else "quantileExactInclusive"),
        expressions=[each.copy() for each in (share.expressions if is_many else [share])],
        params=[node.this.copy()],
    )


def _list(node: exp.ArrayAgg) -> Node:
    outer = node.parent
    condition = outer.expression.this if isinstance(outer, exp.Filter) else None
    value = node.this
    is_distinct = isinstance(value, exp.Distinct) and len(value.expressions) == 1
    if is_distinct:
        value = value.expressions[0]
    is_known = isinstance(condition, exp.Not) and condition.this == exp.Is(
        this=value, expression=exp.null()
    )
    # in a tuple nulls are kept
    kept = _gathered(node, value if is_known else native("tuple", value))
    if is_distinct:
        kept = native("arrayDistinct", kept)
    if is_known:
        return _whole(kept)
    pair = exp.to_identifier("kept")
    first = native("tupleElement", exp.column("kept"), 1)
    return _whole(native("arrayMap", exp.Lambda(this=first, expressions=[pair]), kept))


def _joined(node: exp.GroupConcat) -> Node:
    parts = _gathered(node, node.this)
    separator = node.args.get("separator") or exp.Literal.string(",")
    text = native("arrayStringConcat", parts, separator.copy())
    return _whole(native("if", native("empty", parts.copy()), exp.null(), text))


def _bracket(node: exp.Bracket) -> Node:
    (index,) = node.expressions
    if isinstance(index, exp.Literal) and index.is_string:
        return node
    return _element(node.this.copy(), native("plus", index.copy(), 1))  # parsed from 0 on


def _cast(node: exp.Cast) -> Node:
    value, kind = node.this, node.to.this
    if isinstance(value, exp.Anonymous) and value.name in _NUMBERS and kind in _WHOLE:
        return native("toInt64", _rounded(value)) if value.name == "toFloat64" else value
    is_reckoned = isinstance(value, exp.Binary | exp.Func | exp.Paren | exp.Filter)
    if kind in _WHOLE and is_reckoned and not isinstance(value, exp.Bracket | exp.DPipe):
        node.set("this", native("round", value.copy()))  # to the even one, as DuckDB does
    return node


def _try_cast(node: exp.TryCast) -> Node:
    text = native("trimBoth", native("toString", node.this.copy()))
    number = native("toFloat64OrNull", text.copy())
    kind = node.to.this
    if kind in _REAL:
        return number
    if kind in _WHOLE:
        near = native("accurateCastOrNull", _rounded(number), exp.Literal.string("Int64"))
        return native("coalesce", native("toInt64OrNull", text), near)
    return exp.Cast(this=node.this.copy(), to=node.to.copy())


def _literal(node: exp.Literal) -> Node:
    text = node.name
    if node.is_string or not text.isdigit() or int(text) < _BIG:
        return node
    return native("toInt64", exp.Literal.string(text)) if int(text) < 2**63 else node


def _round(node: exp.Round) -> Node:
    digits = node.args.get("decimals")
    if digits is None:
        return _rounded(node.this)
    scale = native("pow", 10, digits.copy())
    return native("divide", _rounded(_times(node.this, scale)), scale.copy())


def _series(node: exp.GenerateSeries) -> Node:
    end = node.args["end"].copy()
    if not node.args.get("is_end_exclusive"):
        end = native("plus", end, 1)
    step = node.args.get("step")
    return native("range", node.args["start"].copy(), end, *([step.copy()] if step else []))


def _entries(node: exp.MapFromEntries) -> Node:
    """``map_from_entries(list_filter(map_entries(m), lambda pair: ...))``."""
    found = node.this
    if isinstance(found, exp.ArrayFilter) and isinstance(found.expression, exp.Lambda):
        pair = found.expression.expressions[0].name
        condition = found.expression.this.copy()
        for dot in [*condition.find_all(exp.Dot)]:
            if dot.this.name == pair:
                dot.replace(exp.column(dot.expression.name))
        names = [exp.to_identifier("key"), exp.to_identifier("value")]
        kept = exp.Lambda(this=condition, expressions=names)
        return native("mapFilter", kept, found.this.expressions[0].copy())
    return native("mapFromArrays", node.this.copy())


def _like(node: exp.Like | exp.ILike) -> Node:
    pattern = node.expression
    if isinstance(pattern, exp.Literal):  # a backslash stands for itself in DuckDB
        pattern.set("this", pattern.name.replace("\\", "\\\\"))
    return node


def _length(node: exp.Length) -> Node:
    """Of a list, or of a text in bytes; ``length`` of a list is what the queries ask."""
    return native("length", node.this.copy())


def _log_value(node: exp.Anonymous) -> Node:
    ratio = exp.Literal.number(repr(GAMMA))
    power = native("pow", ratio, node.expressions[0].copy())
    return native("divide", _times(power, 2), native("plus", ratio.copy(), 1))


def _renamed(name: str) -> Rule:
    def rule(node: Node) -> Node:
        parts = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        return native(name, *(part.copy() for part in parts))

    return rule


RULES: Final[Mapping[type[Node], Rule]] = {
    exp.PercentileDisc: _disc,
    exp.Quantile: _disc,
    exp.PercentileCont: _cont,
    exp.Median: _cont,
    exp.ArrayAgg: _list,
    exp.GroupConcat: _joined,
    exp.IgnoreNulls: lambda node: node.this,  # they are left out anyway
    exp.Filter: _unwrapped,
    exp.Window: _unwrapped,
    exp.Bracket: _bracket,
    exp.Cast: _cast,
    exp.TryCast: _try_cast,
    exp.Literal: _literal,
    exp.Round: _round,
    exp.GenerateSeries: _series,
    exp.MapFromEntries: _entries,
    exp.MapKeys: _renamed("mapKeys"),
    exp.ArraySort: _renamed("arraySort"),
    exp.Explode: _renamed("arrayJoin"),
    exp.Lower: _renamed("lowerUTF8"),
    exp.Upper: _renamed("upperUTF8"),
    exp.Length: _length,
    exp.Like: _like,
    exp.ILike: _like,
}
"""Form of a node -> what stands for it."""
NAMED: Final[Mapping[str, Rule]] = {
    "map_values": _renamed("mapValues"),
    "map_entries": _renamed("__entries"),
    "hash": _renamed("xxHash64"),
    "log_value": _log_value,
}
"""The same for functions that sqlglot knows by name alone."""
ALIKE: Final = (
    *(exp.And, exp.Or, exp.Xor, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Exists),
    *(exp.Count, exp.CountIf, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.AnyValue),
    *(exp.ArgMin, exp.ArgMax, exp.Array, exp.ArrayContains, exp.ArrayFilter),
    *(exp.Greatest, exp.Least, exp.Abs, exp.Floor, exp.Ceil, exp.Sqrt, exp.Ln, exp.Exp, exp.Pow),
    *(exp.StartsWith, exp.EndsWith, exp.Contains, exp.Split, exp.RegexpLike),
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue),
)
"""Functions that mean the same on both engines as sqlglot says them."""
_NEVER: Final = (
    *(exp.Interval, exp.TableSample, exp.Pivot, exp.Lateral, exp.Unnest, exp.Slice),
    *(exp.Struct, exp.AtTimeZone, exp.Collate, exp.Into),
)
