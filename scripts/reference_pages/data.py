"""What is stored: views with their columns, stages, attribute keys."""

import re
from pathlib import Path

from reference_pages.base import ROOT, SAMPLE, below, lowered, page, spoken, table


def views() -> str:
    """The views with their columns, and the stages."""
    from longpole.vocab import STAGE_DOC
    from longpole_collector import open_reader
    from longpole_collector.stores.views import views as known

    reader = open_reader(files=[ROOT / SAMPLE])
    parts = []
    for name, view in known().items():
        types = {
            row["column_name"]: row["column_type"]
            for row in reader.sql(f"DESCRIBE {name}").to_pylist()
        }
        rows = [
            (f"`{column}`", kind, view.columns.get(column, "")) for column, kind in types.items()
        ]
        parts.append(f"## `{name}`\n\n{view.meaning}\n\n" + table(("column", "type", "what"), rows))
    reader.close()
    told_stages = [(f"`{stage}`", text) for stage, text in STAGE_DOC.items()]
    parts.append("## Stages\n\nThe values of `stage`.\n\n" + table(("stage", "what"), told_stages))
    intro = (
        "What `longpole query` and `POST /api/v1/query` read. Units are in the names; null is "
        "unknown, never 0."
    )
    return page("Views and columns", intro, *parts)


def attribute_keys() -> str:
    """The attribute keys, by the sections of their file."""
    from longpole.vocab import Span, keys
    from longpole.vocab import columns as span_columns
    from longpole_collector.dialects.otel_genai import RULES

    told = dict(below("longpole.vocab.keys"))
    columns = {key: rule.column for key, rule in RULES.items()}
    meanings = {column.name: column.doc for column in span_columns(Span)}
    source = Path(keys.__file__).read_text("utf-8")
    sections = re.split(r"^# --- (.+?) -*$", source, flags=re.MULTILINE)
    parts = []
    for title, body in zip(sections[1::2], sections[2::2], strict=True):
        names = re.findall(r"^([A-Z][A-Z0-9_]*): Final", body, re.MULTILINE)
        rows: list[tuple[str, ...]] = []
        for name in names:
            column = columns.get(getattr(keys, name), "")
            what = lowered(spoken(told[name])) or meanings.get(column, "")
            what = "" if what in columns else what
            rows.append((f"`{getattr(keys, name)}`", f"`{column}`" if column else "", what))
        head = ("key", "column of `spans`", "what")
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n" + table(head, rows))
    intro = (
        "Every key that longpole writes, or reads beside those of the dialects. Times are seconds "
        "unless the name says otherwise. What is not recognised is kept in `spans.attributes`."
    )
    return page("Attribute keys", intro, *parts)
