"""The advisor and the audit on what is broken, hostile, or hardly there: no exception, ever."""

import json
import random

import pyarrow as pa
import pytest

from longpole.vocab import Span, keys
from longpole_analytics.advisor import advise, population
from longpole_analytics.audit_lines import LINES, audited
from longpole_analytics.prices import shipped

from .advisor_workloads import FAULTS, planted
from .tables import spans_table
from .traces import call, span

HOSTILE = [
    "\x1b[2J\u202eevil",
    "'; DROP TABLE spans; --",
    "[bold]x[/bold]",
    "",
    "a\x1fb",
    "x" * 9_000,
]


def both(table):
    """What both say of a table; whatever is in it, no number told is NaN or infinite."""
    pop = population(table, shipped(), is_compiled=False)
    report, found = advise(pop), audited(pop)
    for each in (report, found):
        assert json.loads(json.dumps(each.document(), allow_nan=False))["schema"]
    return report, found


def test_nothing_gives_nothing():
    report, found = both(spans_table([]))
    assert (report.num_traces, report.advice, found.lines) == (0, (), ())
    assert population(pa.table({}), shipped()) is None


def test_one_trace_gives_no_advice():
    report, found = both(spans_table([span("1" * 16, None, 0, 10), call("2" * 16, "1" * 16, 0, 9)]))
    assert (report.num_traces, report.advice) == (1, ())
    assert len(found.lines) == len(LINES)
    assert not any(line.grade == "fail" for line in found.lines if line.check != "measured")


def test_an_incomplete_trace_alone_is_left_out():
    report, found = both(spans_table([call("2" * 16, "1" * 16, 0, 9)]))
    assert (report.num_traces, report.num_left_out, found.num_traces) == (0, 1, 0)


STRUCTURE = ["trace_id", "span_id", "parent_id", "name", "kind", "start_ns", "end_ns", "dialect",
             "status", "received_ns"]  # fmt: skip
"""Columns that make a tree of spans."""


def unknown(table, *names):
    """The table with nothing known in these columns."""
    for name in names:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.nulls(len(table), table.schema[place].type))
    return table


@pytest.mark.parametrize("fault", ["serial_tools", "unstable_prefix", "hedges", "cold_paths"])
def test_columns_that_are_null_or_missing(fault):
    whole = spans_table(planted(fault, 1, num=30, num_clean=5))
    others = [name for name in Span._fields if name not in STRUCTURE]
    table = unknown(whole, *(name for name in others if random.Random(name).random() < 0.5))
    for poor in (
        table,
        table.drop_columns(["attributes", "links", "events"]),
        whole.select(STRUCTURE),
    ):
        report, found = both(poor)
        assert (report.num_traces, report.num_left_out, found.num_traces) == (50, 0, 50)
        assert len(found.lines) == len(LINES)
    assert {line.grade for line in found.lines if line.check != "measured"} == {"not observable"}


@pytest.mark.parametrize("column", ["parent_id", "end_ns"])
def test_spans_that_make_no_tree_are_left_out(column):
    whole = spans_table(planted("hedges", 1, num=30, num_clean=5))
    report, found = both(unknown(whole, column))
    assert (report.num_traces, report.num_left_out, report.advice) == (0, 50, ())
    assert (found.num_traces, found.lines) == (0, ())


def test_cycles_duplicates_and_lost_parents():
    spans = planted("unused_fanout", 2, num=30, num_clean=5)
    rng = random.Random(2)
    harmed = {spans[0].trace_id}
    for _ in range(40):
        a, b = rng.sample(range(len(spans)), 2)
        harmed.add(spans[a].trace_id)
        spans[a] = spans[a]._replace(parent_id=spans[b].span_id)
        spans.append(spans[b])
    same = [one for one in spans if one.trace_id == spans[0].trace_id]
    spans += [one._replace(parent_id=one.span_id) for one in same]
    harmed |= {one.trace_id for one in spans[:10]}
    spans += [one._replace(end_ns=None) for one in spans[:10]]
    spans += [one._replace(end_ns=one.start_ns - 10**9, span_id="f" * 16) for one in spans[:5]]
    report, found = both(spans_table(spans))
    assert report.num_traces + report.num_left_out == 50
    assert 1 <= report.num_left_out <= len(harmed)
    assert found.num_traces == report.num_traces


def test_hostile_names_and_values_stay_text():
    spans = planted("serial_calls", 3, num=40, num_clean=5)
    rng = random.Random(3)
    routes = {one.route: rng.choice(HOSTILE) for one in spans}
    names = {one.name: rng.choice(HOSTILE) for one in spans}
    spans = [
        one._replace(
            route=routes[one.route],
            name=names[one.name],
            attributes={
                **one.attributes,
                keys.BRANCH_USED: "[[[",
                keys.ATTEMPT_OFFSETS_US: '{"a": nan',
                keys.PROMPT_NUM_BLOCKS: "many",
                keys.PROMPT_CHAIN: "zz",
                keys.DEADLINE: "NaN",
                keys.SPECULATION_AGE: "-inf",
                f"{keys.PROMPT_SEGMENT_PREFIX}x\x00.hash": "1",
                f"{keys.PROMPT_SEGMENT_PREFIX}.length": "-5",
                f"{keys.OUTCOME_FACT_PREFIX}used_tokens": "1e999",
            },
        )
        for one in spans
    ]
    report, _ = both(spans_table(spans))
    for advice in report.advice:
        shown = advice.found.title + advice.found.change + advice.found.verify
        assert "\x1b" not in shown
        assert "\u202e" not in shown


@pytest.mark.parametrize("seed", range(3))
def test_numbers_that_cannot_be(seed):
    rng = random.Random(seed)
    spans = planted(rng.choice(list(FAULTS)), seed, num=25, num_clean=5)
    wrong = {
        "input_tokens": [-5, 2**62, 0, None],
        "output_tokens": [-1, 0, 2**61, None],
        "cached_input_tokens": [10**15, -3, None],
        "reasoning_tokens": [10**9, -1, None],
        "ttft_ns": [-(10**9), 10**18, 0, None],
        "last_content_ns": [-1, 10**18, None],
        "tokens_per_chunk": [float("nan"), float("inf"), -1.0, None],
        "num_attempts": [-1, 10**9, None],
        "consumer_hold_ns": [-(10**12), 10**18, None],
    }
    harmed = [
        one._replace(**{name: rng.choice(values) for name, values in wrong.items()})
        for one in spans
    ]
    report, found = both(spans_table(harmed))
    assert (report.num_traces, report.num_left_out, found.num_traces) == (45, 0, 45)
    assert len(found.lines) == len(LINES)
