"""Where ``whatif`` gets its spans from: all of a source, in the form that compiled loops take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from longpole.errors import BadInput
from longpole_analytics.loading import Source, all_rows, load_requests

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from longpole_collector.stores.base import Reader, Value

_KEY: Final = ("start_ns", "trace_id", "span_id")
MAX_WALL_NS: Final = 24 * 3600 * 10**9
"""Spans of a trace are looked for so long before and after its start."""


def load_spans(
    source: Source,
    where: str | None = None,
    between: tuple[int | None, int | None] = (None, None),
) -> pa.Table:
    """The spans of a source, or of its requests that meet a condition; ids as numbers.

    Args:
        source: trace files, a folder or an address.
        where: an SQL condition over the columns of requests; it leaves incomplete traces out.
        between: when requests began, [since, until) in Unix epoch nanoseconds.

    Raises:
        BadInput: a file or the condition cannot be read, or there are no spans in the file.
        Unreachable: no data there.
        UsageError: options that contradict each other.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from longpole_collector.settings import chosen_folder
    from longpole_collector.stores import open_reader

    wanted: list[str] = []
    window: list[Value] = []
    is_selected = bool(where) or between != (None, None)
    if is_selected:
        since_ns, until_ns = between
        requests = load_requests(source, where=where, since_ns=since_ns, until_ns=until_ns)
        wanted = requests["trace_id"].to_list()
        starts = requests["start_ns"].drop_nulls()
        if len(starts):
            window = [int(starts.min()) - MAX_WALL_NS, int(starts.max()) + MAX_WALL_NS]  # type: ignore[arg-type]
    folder = chosen_folder(source.db, source.project, source.url or source.files)
    reader = open_reader(db=folder, url=source.url, files=source.files)
    try:
        spans = _rows(reader, window)
    finally:
        reader.close()
    if is_selected:
        spans = spans.filter(pc.is_in(spans["trace_id"], pa.array(wanted, pa.string())))
    return numbered(spans)


def numbered(spans: pa.Table) -> pa.Table:
    """Rows of the view ``spans`` with ids as unsigned numbers, as the roll-up of tables takes them.

    A trace's id becomes ``trace_hi`` and ``trace_lo``; columns of the record that are missing are
    null.

    Raises:
        BadInput: an id is no hex text of 32, or 16, digits.
    """
    import pyarrow as pa

    from longpole.vocab import Span
    from longpole_analytics.bulk.each import schema

    hi, lo = _numbers(spans, "trace_id", 2)
    arrays: dict[str, Any] = {"trace_hi": hi, "trace_lo": lo}
    for name in ("span_id", "parent_id"):
        (arrays[name],) = _numbers(spans, name, 1)
    wanted = schema(Span)
    for field in wanted:
        if field.name in arrays:
            continue
        known = field.name in spans.column_names
        column = spans[field.name].combine_chunks() if known else pa.nulls(len(spans))
        arrays[field.name] = column.cast(field.type)
    return pa.table([arrays[field.name] for field in wanted], schema=wanted)


def weights(
    spans: pa.Table, hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]
) -> npt.NDArray[np.float64] | None:
    """How many each of some traces stands for; ``None`` where each stands for itself.

    A trace has its root's weight, else the least that one of its spans has.

    Args:
        spans: as :func:`numbered` gives them.
        hi: upper halves of the traces' ids.
        lo: lower halves.
    """
    import numpy as np
    import polars as pl

    if spans["weight"].null_count == spans.num_rows:
        return None
    told = spans.select(["trace_hi", "trace_lo", "parent_id", "weight"])
    frame = pl.DataFrame(told).drop_nulls("weight")
    root = pl.col("weight").filter(pl.col("parent_id").is_null()).min()
    found = frame.group_by("trace_hi", "trace_lo").agg(
        pl.coalesce(root, pl.col("weight").min()).alias("weight")
    )
    ids = pl.DataFrame({"trace_hi": np.asarray(hi), "trace_lo": np.asarray(lo)})
    joined = ids.join(found, on=["trace_hi", "trace_lo"], how="left", maintain_order="left")
    return joined["weight"].fill_null(1.0).to_numpy()


def _numbers(spans: pa.Table, name: str, num_words: int) -> list[pa.Array]:
    """Hex text as words of 16 digits each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    column = spans[name].combine_chunks().cast(pa.string())
    missing = column.is_null().to_numpy(zero_copy_only=False)
    digits = 16 * num_words
    if not len(column):
        return [pa.array([], pa.uint64())] * num_words
    filled = pc.fill_null(column, "0" * digits)
    if pc.any(pc.not_equal(pc.binary_length(filled), digits)).as_py():
        raise BadInput(f"column {name} holds an id that has not {digits} hex digits")
    _, offsets, data = filled.buffers()
    first = np.frombuffer(offsets, np.int32)[filled.offset]
    text = np.frombuffer(data, np.uint8)[first : first + digits * len(filled)]
    halves = _hex_values(text).reshape(len(filled), num_words, 8, 2)
    if (halves > 15).any():
        raise BadInput(f"column {name} holds an id that has not {digits} hex digits")
    words = (halves[..., 0] << 4 | halves[..., 1]).copy().view(">u8").astype(np.uint64)
    return [pa.array(words[:, place, 0], mask=missing) for place in range(num_words)]


def _hex_values(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """What each hex digit stands for; 255 for anything else."""
    import numpy as np

    table = np.full(256, 255, np.uint8)
    for value, digit in enumerate(b"0123456789abcdef"):
        table[digit] = value
    return table[text]


def _rows(reader: Reader, window: list[Value]) -> pa.Table:
    """All spans that began in a window."""
    from longpole.vocab import Span
    from longpole_analytics.bulk.each import TRACE, schema

    names = ", ".join(["trace_id", *(n for n in schema(Span).names if n not in TRACE)])
    inside = "start_ns BETWEEN ? AND ?" if window else "true"
    return all_rows(reader, f"SELECT {names} FROM spans", [inside], window, _KEY)  # noqa: S608
