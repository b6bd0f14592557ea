"""The SQL views, one file each in ``sql/``, with a comment on every column.

A view file holds one SELECT whose first lines are its header comment and whose columns read
``expression AS name, -- meaning``; both comments go into the database, so any SQL tool can show
what a column means.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from itertools import takewhile
from typing import Final, NamedTuple

from longpole.vocab import Span, columns
from longpole_collector.stores.schema import SPANS, select_list

_COLUMN: Final = re.compile(r"(?:^|\s)(?:AS\s+)?(\w+),?[ \t]+--[ \t]*(.+)$", re.MULTILINE)
GAMMA: Final = (1 + 0.01) / (1 - 0.01)
"""Ratio of a logarithmic bucket's edges: what stands for it is within 1 % of all in it."""
# hex takes half as long as printf, but leaves zeros at the front out: from 16^15 on there are none
_MACROS: Final = f"""
CREATE OR REPLACE MACRO trace_hex(hi, lo) AS CASE
    WHEN hi >= 1152921504606846976 THEN lower(hex((hi::UHUGEINT << 64) | lo))
    ELSE printf('%016x%016x', hi, lo) END;
CREATE OR REPLACE MACRO span_hex(id) AS CASE
    WHEN id >= 1152921504606846976 THEN lower(hex(id))
    ELSE printf('%016x', id) END;
CREATE OR REPLACE MACRO not_negative(x) AS CASE WHEN x < 0 THEN 0 ELSE x END;
CREATE OR REPLACE MACRO log_near(x) AS ceil(ln(x) / ln({GAMMA}e0))::INTEGER;
CREATE OR REPLACE MACRO log_bucket(x) AS CASE
    WHEN x <= 0 OR x IS NULL THEN NULL
    WHEN x <= pow({GAMMA}e0, log_near(x) - 1) THEN log_near(x) - 1
    WHEN x > pow({GAMMA}e0, log_near(x)) THEN log_near(x) + 1
    ELSE log_near(x) END;
CREATE OR REPLACE MACRO log_value(b) AS 2 * pow({GAMMA}e0, b) / ({GAMMA}e0 + 1);
"""
_UNITS: Final = (("minute", "1"), ("hour", "60"))
OF_TRACE: Final = ("spans", "calls", "traces", "trace_stages")
"""Views that can be asked for one trace."""
COUNTS: Final = ("minutes", "hours", "stage_minutes", "stage_hours")
"""Views whose rows begin up to an hour before what they count."""
OF_TIME: Final = ("spans", "calls", "traces", *COUNTS)
"""Views that can be asked for a stretch of time: whose rows have a start."""
_ROWS: Final = re.compile(
    r"\bFROM (span_rows|call_rows|trace_rows|trace_stage_rows|minute_rows)\b(?! AS)"
)


class View(NamedTuple):
    """One view: its SELECT, what it is, and what its columns mean."""

    name: str
    query: str
    meaning: str
    columns: dict[str, str]


@lru_cache(maxsize=1)
def views() -> dict[str, View]:
    """All views by name, in their order.

    ``{spans}`` in a file stands for the span record's columns. A file that says ``{unit}`` is of
    two views, whose rows cover a minute and an hour.
    """
    found: list[View] = []
    for file in files("longpole_collector").joinpath("sql").iterdir():
        if file.name.endswith(".sql"):
            name, source = file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
            found += (
                _view(
                    name.replace("minutes", f"{unit}s"),
                    source.replace("{unit}", unit).replace("{num_minutes}", num_minutes),
                )
                for unit, num_minutes in _UNITS[: 2 if "{unit}" in source else 1]
            )
    return {view.name: view for view in sorted(found)}


def _view(name: str, source: str) -> View:
    header = [
        line.removeprefix("--").strip()
        for line in takewhile(lambda line: line.startswith("--"), source.splitlines())
    ]
    meanings = dict(_COLUMN.findall(source))
    if "{spans}" in source:
        meanings = {column.name: column.doc for column in columns(Span)}
    return View(name, source.replace("{spans}", select_list(SPANS)), " ".join(header), meanings)


def macros() -> str:
    """SQL that makes the functions that views use."""
    return _MACROS


def script() -> str:
    """SQL that makes views and comments anew."""
    parts: list[str] = []
    for view in views().values():
        parts.append(f"CREATE OR REPLACE VIEW {view.name} AS {view.query};")
        parts.append(f"COMMENT ON VIEW {view.name} IS {_quoted(view.meaning)};")
        parts += [
            f"COMMENT ON COLUMN {view.name}.{column} IS {_quoted(meaning)};"
            for column, meaning in view.columns.items()
        ]
    return "\n".join(parts)


def over(view: str, rows: Callable[[str], str]) -> str:
    """SELECT of a view over some of the rows that it is made of.

    Args:
        view: its name.
        rows: SELECT of them, by the name of the table that they are of.
    """
    return _ROWS.sub(lambda match: f"FROM ({rows(match[1])}) AS {match[1]}", views()[view].query)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
