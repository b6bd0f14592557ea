"""The compiled roll-ups equal the reference on what libraries really send."""

from pathlib import Path

import pyarrow as pa
import pytest

from longpole.vocab import Span
from longpole_analytics.bulk.each import roll_up_each, schema
from longpole_analytics.bulk.table import plain_share, roll_up_many
from longpole_analytics.frames import spans_from_table
from longpole_collector.stores import open_reader
from longpole_collector.stores.schema import HEAVY, SPANS, STAGES, TRACES, arrow_schema, to_arrow

CORPUS = Path(__file__).parent / "corpus"
SAMPLE = Path(__file__).parents[2] / "sample_data" / "demo.parquet"


def rows_of(*files: Path) -> pa.Table:
    """The spans of some files as the store keeps them."""
    reader = open_reader(files=files)
    try:
        spans = spans_from_table(reader.sql("SELECT * FROM spans"))
    finally:
        reader.close()
    return to_arrow(SPANS, spans).drop_columns(sorted(HEAVY))


def by_id(table: pa.Table) -> list[dict[str, object]]:
    keys = [name for name in ("trace_hi", "trace_lo", "stage") if name in table.column_names]
    return table.sort_by([(key, "ascending") for key in keys]).to_pylist()


def test_the_columns_are_those_of_the_store():
    stored = {field.name: field.type for field in arrow_schema(SPANS)}
    ours = {field.name: field.type for field in schema(Span)}
    assert ours == {name: stored[name] for name in stored if name != "attributes"}
    traces, stages = roll_up_many(schema(Span).empty_table())
    assert traces.schema == arrow_schema(TRACES)
    assert stages.schema == arrow_schema(STAGES)


@pytest.mark.parametrize(
    ("files", "least_share"),
    [(sorted(CORPUS.glob("*.otlp.pb")), 0.5), ([SAMPLE], 1.0)],
    ids=["captures", "sample"],
)
def test_both_ways_agree(files: list[Path], least_share: float):
    spans = rows_of(*files)
    many, each = roll_up_many(spans), roll_up_each(spans)
    assert by_id(many[0]) == by_id(each[0])
    assert by_id(many[1]) == by_id(each[1])
    assert plain_share(spans) >= least_share
