"""Many traces at once say of two steps what the definition says of one trace after the other."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole_analytics.advisor._apart import Families
from longpole_analytics.serial import Sibling, seen_apart

NAMES = ("fetch", "rank", "é search")
_step = st.tuples(
    st.integers(0, 3),
    st.none() | st.integers(0, 2),
    st.sampled_from(NAMES),
    st.integers(1, 12),
    st.none() | st.integers(0, 6),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_step, max_size=24))
def test_the_traces_in_which_two_names_are_apart_are_those_of_the_definition(
    steps: list[tuple[int, int | None, str, int, int | None]],
) -> None:
    rows = [
        # a parent's row is in one trace
        (trace, None if parent is None else 10 * trace + parent, name, start, length)
        for trace, parent, name, start, length in steps
    ]
    ended = [(*row[:4], None if row[4] is None else row[3] + row[4]) for row in rows]
    schema = {
        "trace": pl.Int64,
        "parent": pl.Int64,
        "name": pl.String,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    }
    families = Families(pl.DataFrame(ended, schema, orient="row"))
    pairs = [(one, two) for one in (*NAMES, "unknown") for two in NAMES]
    traces: dict[int, list[Sibling]] = {}
    for trace, parent, name, start, end in ended:
        traces.setdefault(trace, []).append(Sibling(str(parent), name, start, end))
    for pair in pairs:
        apart = [trace for trace, own in traces.items() if seen_apart([own], [pair])[pair]]
        assert families.apart(*pair).tolist() == sorted(apart)
    wanted = [NAMES[0], "unknown"]
    has_any = {trace for trace, own in traces.items() if any(s.name in wanted for s in own)}
    assert families.with_any(wanted).tolist() == sorted(has_any)
