"""The shape of a SELECT where the two engines read it differently; before the rules of values."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

_TRUTHS: Final = (
    exp.Predicate,
    exp.Connector,
    exp.Not,
    exp.Boolean,
    exp.ArrayContains,
    exp.StartsWith,
    exp.EndsWith,
    exp.Contains,
)
_REALS: Final = (
    *(exp.Div, exp.Ln, exp.Exp, exp.Sqrt, exp.Pow, exp.Floor, exp.Ceil, exp.Round, exp.Avg),
)
_REAL_NAMES: Final = ("_ms", "_usd", "_ratio", "_per_chunk", "weight")
"""How columns with a fraction end."""
UNROLLED: Final = "__unrolled"


def reshape(tree: exp.Expr) -> None:
    """Put a statement of DuckDB's into the shape that ClickHouse reads the same way."""
    for table in tree.find_all(exp.Table):
        if table.db.lower() == "main":
            table.set("db", None)
    for common in tree.find_all(exp.CTE):
        common.set("materialized", None)
    for number, subquery in enumerate(tree.find_all(exp.Subquery)):
        if isinstance(subquery.parent, exp.From | exp.Join) and not subquery.alias:
            subquery.set("alias", exp.TableAlias(this=exp.to_identifier(f"__unnamed{number}")))
    for union in [*tree.find_all(exp.SetOperation)][::-1]:  # inner ones first
        if union.args.get("by_name"):
            _by_place(union)
    for node in tree.find_all(exp.Greatest, exp.Least, exp.Coalesce, exp.Case):
        _reals(node)
    for select in tree.find_all(exp.Select):
        _names(select)
        _booleans(select)
        _order(select)
        _unnests(select)


def is_boolean(node: exp.Expr | None) -> bool:
    """Whether a value is true or false, as far as its form tells."""
    if isinstance(node, exp.Paren | exp.Filter | exp.Window | exp.Max | exp.Min):
        return is_boolean(node.this)
    if isinstance(node, exp.Coalesce):
        return any(map(is_boolean, (node.this, *node.expressions)))
    if isinstance(node, exp.Case):
        return any(is_boolean(branch.args["true"]) for branch in node.args["ifs"])
    return isinstance(node, _TRUTHS) and not isinstance(node, exp.Subquery)


def _by_place(union: exp.SetOperation) -> None:
    """UNION BY NAME, which ClickHouse has not, becomes one by place; what a side lacks is null."""
    sides = [*_selects(union)]
    names = list(dict.fromkeys(name for side in sides for name in side.named_selects))
    for side in sides:
        own = dict(zip(side.named_selects, side.expressions, strict=True))
        side.set("expressions", [own.get(n) or exp.alias_(exp.null(), n) for n in names])
    union.set("by_name", None)


def _selects(node: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs that a union is made of."""
    if isinstance(node, exp.SetOperation):
        yield from _selects(node.left)
        yield from _selects(node.right)
    elif isinstance(node, exp.Select):
        yield node
    else:
        yield from _selects(node.unnest())


def is_real(node: exp.Expr | None) -> bool:
    """Whether a value is a number with a fraction, as far as its form tells."""
    if isinstance(node, exp.Literal):
        return not node.is_string and not node.name.isdigit()
    if isinstance(node, exp.Column):
        return node.name.endswith(_REAL_NAMES)
    if isinstance(node, exp.Placeholder):
        return False
    if isinstance(node, exp.Cast):
        return bool(node.to.this == exp.DataType.Type.DOUBLE)
    if isinstance(node, exp.Paren | exp.Neg | exp.Filter | exp.Sum | exp.Max | exp.Min):
        return is_real(node.this)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return is_real(node.this) or is_real(node.expression)
    return isinstance(node, _REALS)


def _reals(node: exp.Expr) -> None:
    """What may be whole or not becomes not whole: ClickHouse has no type for both."""
    parts = [node.this, *node.expressions, node.args.get("default")]
    parts = parts[2:] if isinstance(node, exp.Case) else parts
    parts += [branch.args["true"] for branch in node.args.get("ifs") or ()]
    known = [part for part in parts if part is not None and not isinstance(part, exp.Null)]
    if not any(map(is_real, known)):
        return
    for part in known:
        if not is_real(part):
            part.replace(exp.Cast(this=part.copy(), to=exp.DataType.build("DOUBLE")))


def _names(select: exp.Select) -> None:
    """A column of one of several tables is called by its own name, not by the table's too."""
    for item in select.expressions:
        if isinstance(item, exp.Column) and item.table and not isinstance(item.this, exp.Star):
            item.replace(exp.alias_(item.copy(), item.name, quoted=True))


def _booleans(select: exp.Select) -> None:
    """Comparisons are small numbers in ClickHouse; as columns they must be true or false."""
    for item in select.expressions:
        value = item.this if isinstance(item, exp.Alias) else item
        if is_boolean(value):
            name = item.alias if isinstance(item, exp.Alias) else value.sql(dialect="duckdb")
            made = exp.Cast(this=value.copy(), to=exp.DataType.build("BOOLEAN"))
            item.replace(exp.alias_(made, name, quoted=True))


def _order(select: exp.Select) -> None:
    """ORDER BY means the result's columns; ClickHouse is told to prefer the table's own."""
    named = {item.alias: item.this for item in select.expressions if isinstance(item, exp.Alias)}
    order = select.args.get("order")
    for term in order.expressions if order else ():
        column = term.this
        if isinstance(column, exp.Column) and not column.table and column.name in named:
            value = named[column.name]
            if not value.find(exp.Explode) and not isinstance(value, exp.Column):
                column.replace(value.copy())


def _unnests(select: exp.Select) -> None:
    """Lists that are unrolled side by side become one ARRAY JOIN."""
    found = [
        node
        for item in select.expressions
        for node in item.find_all(exp.Explode)
        if node.parent_select is select
    ]
    if not found or select.args.get("from_") is None:
        return
    joined: list[exp.Expr] = []
    for number, node in enumerate(found):
        name = f"{UNROLLED}{number}"
        joined.append(exp.alias_(node.this.copy(), name))
        is_whole = node.parent is select
        node.replace(exp.alias_(exp.column(name), "unnest") if is_whole else exp.column(name))
    select.append("joins", exp.Join(this=joined[0], expressions=joined[1:], kind="ARRAY"))
