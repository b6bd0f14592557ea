"""Rows of a waterfall: folding keeps counts and time, spans without parent stand apart."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.vocab import Span, Stage
from longpole_analytics.stages import partition
from longpole_dashboard.components import waterfall
from longpole_dashboard.model.trace_rows import APART, MAX_PIECES, MIN_FOLDED, SpanRow, num_apart
from longpole_dashboard.model.trace_rows import rows as rows_of

from .sample import MS, Builder, agent_trace


def rows(spans: Sequence[Span], fold_above: int = 10**9) -> tuple[SpanRow, ...]:
    by_id = {span.span_id: span for span in spans}
    return rows_of(partition(spans), by_id, fold_above=fold_above)


def below(found: Sequence[SpanRow], place: int) -> list[SpanRow]:
    """The rows right under one."""
    row = found[place]
    inside = found[place + 1 : place + 1 + row.num_below]
    assert all(each.depth > row.depth for each in inside)
    return [each for each in inside if each.depth == row.depth + 1]


def check(found: Sequence[SpanRow], plain: Sequence[SpanRow]) -> None:
    """What folding must keep: every row once, its time, and the critical time of all."""
    assert len({row.key for row in found}) == len(found)
    kept = [row for row in found if not row.num_folded]
    assert sorted(row.key for row in kept if not row.is_phase) == sorted(
        row.key for row in plain if not row.is_phase
    )
    assert sum(row.critical_ns for row in kept) == sum(row.critical_ns for row in plain)
    for place, row in enumerate(found):
        if row.num_folded:
            members = below(found, place)
            assert len(members) == row.num_folded
            assert row.total_ns == sum(member.total_ns for member in members)
            assert row.critical_ns == sum(member.critical_ns for member in members)
            assert row.is_on_path == any(member.is_on_path for member in members)
            assert row.start_ns == min(member.start_ns for member in members)
            assert row.end_ns == max(member.end_ns for member in members)


def test_repeated_siblings_fold_and_their_numbers_do_not_tell_them_apart() -> None:
    made = Builder()
    root = made.span("root", 0, 3_000)
    for i in range(2_500):
        made.span(f"execute_tool {i}", i, i + 1, root, stage=Stage.TOOL)
    other = made.span("execute_tool 1", 2_600, 2_700, root, stage=Stage.RETRIEVAL)
    plain, found = rows(made.spans), rows(made.spans, 2_000)
    check(found, plain)
    assert [row.name for row in found if row.depth == 1] == ["execute_tool #", "execute_tool 1"]
    folded = found[1]
    assert (folded.num_folded, folded.num_below, folded.total_ns) == (2_500, 2_500, 2_500 * MS)
    assert folded.stretches == ((0, 2_500 * MS, "tool"),)
    assert next(row for row in found if row.key == other.span_id).num_folded == 0
    shown = waterfall._columns(found, ["other", "tool", "retrieval"], 3_000 * MS)
    assert shown["names"][shown["name"][1]] == "execute_tool # \u00d7 2,500"
    assert shown["time"][1] == "Σ 2,500 ms"
    assert shown["is"][1] & waterfall.CLOSED
    assert not shown["is"][0] & waterfall.CLOSED


def test_a_trace_that_is_not_large_is_not_folded() -> None:
    made = Builder()
    root = made.span("root", 0, 300)
    for i in range(200):
        made.span("tool", i, i + 1, root, stage=Stage.TOOL)
    assert not any(row.num_folded for row in rows(made.spans, 2_000))


def test_the_bar_of_folded_rows_has_few_pieces_and_loses_none() -> None:
    made = Builder()
    root = made.span("root", 0, 30_000)
    for i in range(3_000):
        made.span("tool", 10 * i, 10 * i + 4, root, stage=Stage.TOOL)
    folded = rows(made.spans, 2_000)[1]
    assert 1 <= len(folded.stretches) <= MAX_PIECES + 1
    assert folded.stretches[0][0] == 0
    assert folded.stretches[-1][1] == 29_994 * MS
    assert folded.total_ns == 12_000 * MS


# Names of few kinds, so that some repeat; every span's parent is an earlier one.
TREES = st.lists(
    st.tuples(
        st.integers(0, 10**6), st.integers(0, 50), st.integers(0, 40), st.sampled_from("abc")
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_folding_any_tree_keeps_counts_and_time(
    tree: list[tuple[int, int, int, str]],
) -> None:
    made = Builder()
    made.span("root", 0, 200)
    for pick, start, length, name in tree:
        parent = made.spans[pick % len(made.spans)]
        made.span(f"{name} {pick}", start, start + length, parent)
    plain, found = rows(made.spans), rows(made.spans, 0)
    check(found, plain)
    counts: dict[tuple[str | None, str], int] = {}
    for span in made.spans[1:]:
        kind = span.parent_id, span.name[0]
        counts[kind] = counts.get(kind, 0) + 1
    repeated = sorted(n for n in counts.values() if n >= MIN_FOLDED)
    assert sorted(row.num_folded for row in found if row.num_folded) == repeated


def test_spans_without_parent_stand_apart_below_all_others() -> None:
    made = Builder()
    root = made.span("root", 0, 100)
    lost = root._replace(span_id="f" * 16)
    for i in range(12):
        orphan = made.span(f"orphan {i}", i, i + 5, lost)
        made.span("child", i, i + 1, orphan)
    made.span("late", 90, 95, root)
    found = rows(made.spans)
    split = partition(made.spans)
    assert num_apart(split, {span.span_id: span for span in made.spans}) == 12
    place = next(i for i, row in enumerate(found) if row.key == APART)
    assert found[place].name == "12 spans without parent, shown apart"
    assert [row.name for row in found[:place]] == ["root", "late"]
    assert [row.name for row in below(found, place)] == [f"orphan {i}" for i in range(12)]
    assert found[place].num_below == 24 == len(found) - place - 1
    assert num_apart(partition(agent_trace()), {s.span_id: s for s in agent_trace()}) == 0


def test_a_root_that_never_arrived_is_a_stand_in_with_all_apart() -> None:
    made = Builder()
    lost = made.span("lost", 0, 1)._replace(span_id="f" * 16)
    made.spans.clear()
    made.span("one", 0, 40, lost)
    made.span("two", 60, 100, lost)
    found = rows(made.spans)
    assert [row.key for row in found[:2]] == ["root", APART]
    assert [row.name for row in below(found, 1)] == ["one", "two"]


def test_keys_are_the_same_whenever_a_trace_is_read() -> None:
    spans = agent_trace()
    first = rows(spans)
    again = rows([*reversed(spans)])
    assert [row.key for row in first] == [row.key for row in again]
    assert {row.key for row in first} >= {row.span_id for row in first if not row.is_phase}


@pytest.mark.parametrize("depth", [1, 3_000])
def test_depth_is_no_limit(depth: int) -> None:
    made = Builder()
    parent = made.span("root", 0, 10_000)
    for _ in range(depth):
        parent = made.span("step", 1, 9_999, parent)
    found = rows(made.spans, 2_000)
    assert [row.depth for row in found] == [*range(depth + 1)]
    assert [row.num_below for row in found] == [*range(depth, -1, -1)]
