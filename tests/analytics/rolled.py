"""Roll-ups of a table in the compiled way and trace by trace, to be compared."""

import pyarrow as pa

from longpole.vocab import Span, TraceStage
from longpole_analytics.bulk.each import roll_up_each, schema
from longpole_analytics.bulk.table import roll_up_many


def table_of(spans):
    """Spans as the collector's rows: ids as numbers, nothing heavy."""
    wanted = schema(Span)
    rows = []
    for span in spans:
        row = span._asdict()
        trace_id = row.pop("trace_id")
        row |= {"trace_hi": int(trace_id[:16], 16), "trace_lo": int(trace_id[16:], 16)}
        for name in ("span_id", "parent_id"):
            row[name] = row[name] and int(row[name], 16)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=wanted)


def in_order(table):
    """The rows of a table of traces or stages by their ids."""
    keys = [name for name in ("trace_hi", "trace_lo", "stage") if name in table.column_names]
    return table.sort_by([(key, "ascending") for key in keys]).to_pylist()


def assert_both_ways_agree(spans):
    """Compare all fields of all rows, and that critical times sum to the wall; gives the traces."""
    many, each = roll_up_many(spans), roll_up_each(spans)
    for ours, theirs in zip(many, each, strict=True):
        assert ours.schema == theirs.schema
        assert in_order(ours) == in_order(theirs)
    traces, stages = many
    assert stages.schema == schema(TraceStage)
    walls = {(row["trace_hi"], row["trace_lo"]): row["wall_ns"] for row in traces.to_pylist()}
    for row in stages.to_pylist():
        walls[row["trace_hi"], row["trace_lo"]] -= row["critical_ns"]
    assert not any(walls.values())
    return in_order(traces)
