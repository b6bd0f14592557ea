"""A store that bounds its answers gives all its rows, whatever they are alike in."""

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole_analytics import loading

MOST = 12
KEY = ("start_ns", "span_id")


class Bounded:
    """A reader of one table of calls that gives at most so many rows."""

    def __init__(self, starts):
        self.con = duckdb.connect()
        ids = [f"{number:016x}" for number in range(len(starts))]
        schema = {"start_ns": pl.Int64, "span_id": pl.String}
        table = pl.DataFrame({"start_ns": starts, "span_id": ids}, schema)
        self.con.register("calls", table.to_arrow())
        self.whole = table.sort(KEY)

    def sql(self, query, params=()):
        found = self.con.sql(query, params=list(params) or None).to_arrow_table()
        if found.num_rows > MOST:
            raise BadInput("more than the bound")
        return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9) | st.integers(0, 10**6), max_size=120), st.integers(2, MOST - 1))
def test_all_rows_come_once(starts, page):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "PAGE_ROWS", page)
        reader = Bounded(starts)
        for since, until in ((None, None), (3, 500_000)):
            found = loading.view_rows(reader, "calls", since, until).sort(KEY)
            assert found.equals(loading.select(reader.whole, None, since, until))
        reader.con.close()


def test_a_condition_that_is_wrong_is_told():
    reader = Bounded([1] * 30)
    with pytest.raises(duckdb.Error, match="nope"):
        loading.all_rows(reader, "SELECT * FROM calls", ["nope = 1"], [], KEY)
