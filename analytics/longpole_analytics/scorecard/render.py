"""A card as text, Markdown and HTML: one list of headed tables, written three ways.

Everything is made from the document, so all forms tell the same. Names come from anywhere: they are
printed without control characters, and escaped for the form.
"""

import html
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from longpole_analytics.wording import milliseconds, percent, printable, quantile_name

_MAX_SHOWN: Final = 40
_SHORT: Final = (
    *("time", "baseline", "candidate", "ratio", "interval", "n"),
    *("difference", "rate", "guardrail", "status", "mean of a request", "stage", "change"),
)
"""Columns that a narrow terminal does not break."""
Row = tuple[str, ...]


class Block(NamedTuple):
    """A heading, a paragraph for each line, and a table; any may be empty."""

    title: str
    lines: tuple[str, ...]
    heads: Row
    rows: tuple[Row, ...]


def blocks(document: dict[str, Any], names: tuple[str, str]) -> list[Block]:
    """What a card shows, in order.

    Args:
        document: of the card.
        names: how baseline and candidate were asked for.
    """
    target = document["target"]
    ratio = "-" if target["ratio"] is None else f"{target['ratio']:.3f}"
    needed = document["n_needed"]
    lines = [
        f"baseline   {names[0]}   n = {document['n']['base']}",
        f"candidate  {names[1]}   n = {document['n']['cand']}",
        f"target     {quantile_name(target['quantile'])} of {target['metric']}: "
        f"{target['verdict']}, candidate / baseline {ratio} {_ends(target['ci95'])}",
        *(f"why        {reason}" for reason in document["reasons"]),
    ]
    if needed is not None:
        lines.append(f"needed     {needed} requests on each side would decide")
    made = [Block(f"verdict: {document['verdict']}", tuple(lines), (), ())]
    made.append(
        Block("notes", tuple(f"{n['flag']}: {n['text']}" for n in document["notes"]), (), ())
    )
    heads = ("guardrail", "status", "candidate against baseline", "needed")
    rows = [
        (g["name"], g["status"].replace("_", " "), g["text"], _whole(g["n_needed"]))
        for g in document["guardrails"]
    ]
    made.append(_table("guardrails", heads, rows))
    made.append(_metrics(document))
    made += [_rates(document), _means(document), _stages(document), _runs(document)]
    if document["paired"] is not None:
        made.append(_paired(document["paired"]))
    return [block for block in made if block.lines or block.rows]


def _metrics(document: dict[str, Any]) -> Block:
    heads = ("time", "baseline", "candidate", "ratio", "interval", "n")
    why = {"too_few": "too few samples", "not_reached": "not reached", "zero": "is zero"}
    rows = []
    for row in document["metrics"]:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        rows.append(
            (
                f"{quantile_name(row['quantile'])} {row['name']}",
                _time(row["base"], row, 0),
                _time(row["cand"], row, 1),
                ratio,
                why.get(row["reason"], _ends(row["ci95"])),
                str(min(row["n"])),
            )
        )
    return Block("times", _worst(document), heads, tuple(rows))


def _worst(document: dict[str, Any]) -> tuple[str, ...]:
    """The target's quantiles if what did not end never does, where that says something else."""
    name = document["target"]["metric"]
    found = [
        f"{quantile_name(row['quantile'])} {_never(row, 0)} and {_never(row, 1)}"
        for row in document["metrics"]
        if row["name"] == name and row["pessimistic"] not in (None, [row["base"], row["cand"]])
    ]
    return (f"{name} if what failed or was given up never ends: {', '.join(found)}",) * bool(found)


def _never(row: dict[str, Any], at: int) -> str:
    value = row["pessimistic"][at]
    return "never" if value is None else milliseconds(value)


def _time(value: float | None, row: dict[str, Any], at: int) -> str:
    if value is not None:
        return milliseconds(value)
    last = row["last"] and row["last"][at]
    return f"> {milliseconds(last)}" if last else "-"


def _rates(document: dict[str, Any]) -> Block:
    rows = [
        (
            rate["name"].replace("_", " "),
            f"{100 * rate['base']:.2f} %",
            f"{100 * rate['cand']:.2f} %",
            f"{100 * rate['difference']:+.2f} points",
            f"({100 * rate['ci95'][0]:+.2f} to {100 * rate['ci95'][1]:+.2f})",
        )
        for rate in document["rates"]
    ]
    return _table("rates", ("rate", "baseline", "candidate", "difference", "interval"), rows)


def _means(document: dict[str, Any]) -> Block:
    rows = []
    for mean in document["means"]:
        value = "-" if mean["value"] is None else f"{mean['value']:.3g}"
        if mean["kind"] == "difference" and mean["value"] is not None:
            value = f"{mean['value']:+.3g}"
        unknown = 1 - min(mean["known_share"])
        note = f"{percent(unknown)} unknown" if unknown > 0.005 else ""
        rows.append(
            (
                mean["name"],
                _number(mean["base"]),
                _number(mean["cand"]),
                f"{mean['kind']} {value}",
                _ends(mean["ci95"]),
                note,
            )
        )
    for name, both in (*document["throughput"].items(), *document["cache"].items()):
        if any(value is not None for value in both):
            rows.append((name, _number(both[0]), _number(both[1]), "", "", ""))
    for cold in document["cold"]:
        time = "-" if cold["e2e_p50_ms"] is None else milliseconds(cold["e2e_p50_ms"])
        text = f"{cold['n']} cold, p50 {time}"
        own = (text, "") if cold["side"] == "base" else ("", text)
        rows.append(("cold requests", *own, "", "", ""))
    heads = ("mean of a request", "baseline", "candidate", "compared", "interval", "")
    return _table("costs, quality, tokens", heads, rows)


def _stages(document: dict[str, Any]) -> Block:
    rows = []
    for row in document["stages"]:
        numbers = [row["base_ms"], row["cand_ms"], row["change_ms"]]
        rows.append((row["stage"], *("-" if n is None else milliseconds(n) for n in numbers)))
    return _table(
        "stages, mean on the critical path", ("stage", "baseline", "candidate", "change"), rows
    )


def _runs(document: dict[str, Any]) -> Block:
    rows: list[Row] = [
        (row["name"], ", ".join(map(str, row["base"])), ", ".join(map(str, row["cand"])))
        for row in document["environment"]
    ]
    if any(document["workload"]):
        rows.append(("workload hash", *(each or "-" for each in document["workload"])))
    mix = document["mix"]
    how = "weighted to a common mix" if mix["is_standardised"] else mix["reason"]
    method = document["method"]
    lines = (
        f"mix: {how}; confidence {method['confidence']:.4g}, looks: {method['looks']}; "
        f"{method['censored']}",
    )
    return Block("what ran", lines, ("", "baseline", "candidate"), tuple(rows))


def _paired(shift: dict[str, Any]) -> Block:
    ratio = "-" if shift["ratio"] is None else f"{shift['ratio']:.3f}"
    line = (
        f"{shift['num_pairs']} pairs, {shift['num_left_out']} left out; usual ratio of "
        f"{shift['metric']}: {ratio} {_ends(shift['ci95'])}"
    )
    return Block("pairs", (line,), (), ())


def _table(title: str, heads: Row, rows: Sequence[Row]) -> Block:
    return Block(title, (), heads, tuple(rows))


def _ends(ends: Sequence[float | None] | None) -> str:
    if ends is None:
        return ""
    low, high = ("?" if end is None else f"{end:.3g}" for end in ends)
    return f"({low} to {high})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _whole(value: int | None) -> str:
    return "" if value is None else str(value)


# --- forms --------------------------------------------------------------------------------------
def markdown(title: str, found: list[Block]) -> str:
    """The blocks as GitHub Markdown; nothing in a name can leave its cell."""
    parts = [f"# {_marked(title)}"]
    for block in found:
        parts.append(f"## {_marked(block.title)}")
        if block.lines:
            parts.append("\n".join(f"- {_marked(line)}" for line in block.lines))
        if block.rows:
            lines = [block.heads, tuple("---" for _ in block.heads), *block.rows[:_MAX_SHOWN]]
            marked = [
                "| " + " | ".join(cell if cell == "---" else _marked(cell) for cell in line) + " |"
                for line in lines
            ]
            parts.append("\n".join(marked))
    return "\n\n".join(parts) + "\n"


def page(title: str, found: list[Block]) -> str:
    """The blocks as one HTML file: no script, nothing fetched, light and dark, printable."""
    parts = [f"<h1>{_escaped(title)}</h1>"]
    for block in found:
        parts.append(f"<h2>{_escaped(block.title)}</h2>")
        parts += [f"<p>{_escaped(line)}</p>" for line in block.lines]
        if block.rows:
            parts.append(f"<table><thead>{_line(block.heads, 'th')}</thead><tbody>")
            parts += [_line(row, "td") for row in block.rows]
            parts.append("</tbody></table>")
    return _PAGE.format(title=_escaped(title), body="\n".join(parts))


def _line(cells: Row, tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escaped(cell)}</{tag}>" for cell in cells) + "</tr>"


def _escaped(text: str) -> str:
    return html.escape(printable(text), quote=True)


def _marked(text: str) -> str:
    """Text in which Markdown sees no mark, no HTML and no link."""
    plain = html.escape(printable(text), quote=False)
    plain = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", plain)
    # a bare address becomes a link: not out of somebody's route name
    return re.sub(r"(?i)\b(https?|ftp|www)([:.])", r"\1&#8203;\2", plain)


def text(found: list[Block], write: Callable[[Any], None]) -> None:
    """The blocks for a terminal, each part handed to ``write``."""
    from rich.table import Table
    from rich.text import Text

    for number, block in enumerate(found):
        write(Text(("\n" if number else "") + printable(block.title), style="bold"))
        for line in block.lines:
            write(Text(printable(line)))
        if not block.rows:
            continue
        table = Table(box=None, pad_edge=False)
        for head in block.heads:
            table.add_column(head, overflow="fold", no_wrap=head in _SHORT)
        for row in block.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        write(table)


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
p {{ margin: 0.2rem 0; overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #8884;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }}
@media print {{ body {{ max-width: none; margin: 0; }} }}
</style></head><body>
{body}
</body></html>
"""
