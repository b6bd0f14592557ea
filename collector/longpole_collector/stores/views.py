"""The SQL views, one file each in ``sql/``, with a comment on every column.

A view file holds one SELECT whose first lines are its header comment and whose columns read
``expression AS name, -- meaning``; both comments go into the database, so any SQL tool can show
what a column means.
"""

import re
from functools import lru_cache
from importlib.resources import files
from itertools import takewhile
from typing import Final, NamedTuple

from longpole.vocab import Span, columns
from longpole_collector.stores.schema import SPANS, select_list

_COLUMN: Final = re.compile(r"(?:^|\s)(?:AS\s+)?(\w+),?[ \t]+--[ \t]*(.+)$", re.MULTILINE)
GAMMA: Final = (1 + 0.01) / (1 - 0.01)
"""Ratio of a logarithmic bucket's edges: what stands for it is within 1 % of all in it."""
_MACROS: Final = f"""
CREATE OR REPLACE MACRO trace_hex(hi, lo) AS printf('%016x%016x', hi, lo);
CREATE OR REPLACE MACRO span_hex(id) AS printf('%016x', id);
CREATE OR REPLACE MACRO not_negative(x) AS CASE WHEN x < 0 THEN 0 ELSE x END;
CREATE OR REPLACE MACRO log_near(x) AS ceil(ln(x) / ln({GAMMA}e0))::INTEGER;
CREATE OR REPLACE MACRO log_bucket(x) AS CASE
    WHEN x <= 0 OR x IS NULL THEN NULL
    WHEN x <= pow({GAMMA}e0, log_near(x) - 1) THEN log_near(x) - 1
    WHEN x > pow({GAMMA}e0, log_near(x)) THEN log_near(x) + 1
    ELSE log_near(x) END;
CREATE OR REPLACE MACRO log_value(b) AS 2 * pow({GAMMA}e0, b) / ({GAMMA}e0 + 1);
"""
OF_TRACE: Final = ("spans", "calls", "traces", "trace_stages")
"""Views that can be asked for one trace."""
_PLACE: Final = "of_hi, of_lo, since_ns, until_ns, home"
_ROWS: Final = re.compile(r"\bFROM (span_rows|call_rows|trace_rows|trace_stage_rows)\b(?! AS)")


class View(NamedTuple):
    """One view: its SELECT, what it is, and what its columns mean."""

    name: str
    query: str
    meaning: str
    columns: dict[str, str]


@lru_cache(maxsize=1)
def views() -> dict[str, View]:
    """All views by name; ``{spans}`` in a file stands for the span record's columns."""
    found: dict[str, View] = {}
    for file in sorted(files("longpole_collector").joinpath("sql").iterdir(), key=str):
        if not file.name.endswith(".sql"):
            continue
        source = file.read_text(encoding="utf-8")
        header = [
            line.removeprefix("--").strip()
            for line in takewhile(lambda line: line.startswith("--"), source.splitlines())
        ]
        meanings = dict(_COLUMN.findall(source))
        if "{spans}" in source:
            meanings = {column.name: column.doc for column in columns(Span)}
        name = file.name.removesuffix(".sql")
        query = source.replace("{spans}", select_list(SPANS))
        found[name] = View(name, query, " ".join(header), meanings)
    return found


def macros() -> str:
    """SQL that makes the functions that views use."""
    return _MACROS


def script() -> str:
    """SQL that makes views and comments, and of each view a function over one trace, anew."""
    parts: list[str] = []
    for view in views().values():
        parts.append(f"CREATE OR REPLACE VIEW {view.name} AS {view.query};")
        parts.append(f"COMMENT ON VIEW {view.name} IS {_quoted(view.meaning)};")
        parts += [
            f"COMMENT ON COLUMN {view.name}.{column} IS {_quoted(meaning)};"
            for column, meaning in view.columns.items()
        ]
        if view.name in OF_TRACE:
            narrow = _ROWS.sub(_of_trace, view.query)
            name = f"{view.name}_of_trace"
            parts.append(f"CREATE OR REPLACE MACRO {name}({_PLACE}) AS TABLE {narrow};")
    return "\n".join(parts)


def _of_trace(match: re.Match[str]) -> str:
    """A table's rows of one trace: spans by the time they lie in, roll-ups by their file."""
    table = match[1]
    near = (
        "start_ns BETWEEN since_ns AND until_ns"
        if table == "span_rows"
        else "(home IS NULL OR day = home)"
    )
    return (
        f"FROM (SELECT * FROM {table} "  # noqa: S608
        f"WHERE trace_hi = of_hi AND trace_lo = of_lo AND {near}) AS {table}"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
