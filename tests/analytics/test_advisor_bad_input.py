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


@pytest.mark.parametrize("fault", ["serial_tools", "unstable_prefix", "hedges", "cold_paths"])
def test_columns_that_are_null_or_missing(fault):
    table = spans_table(planted(fault, 1, num=30, num_clean=5))
    for name in Span._fields:
        if name in ("trace_id", "span_id", "start_ns", "name", "kind", "dialect", "status",
                    "received_ns"):  # fmt: skip
            continue
        if random.Random(name).random() < 0.5:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, pa.nulls(len(table), table.schema[place].type))
    both(table)
    both(table.drop_columns(["attributes", "links", "events"]))
    only = ["trace_id", "span_id", "parent_id", "name", "kind", "start_ns", "end_ns", "dialect"]
    both(table.select([*only, "status", "received_ns"]))


def test_cycles_duplicates_and_lost_parents():
    spans = planted("unused_fanout", 2, num=30, num_clean=5)
    rng = random.Random(2)
    for _ in range(40):
        a, b = rng.sample(range(len(spans)), 2)
        spans[a] = spans[a]._replace(parent_id=spans[b].span_id)
        spans.append(spans[b])
    same = [one for one in spans if one.trace_id == spans[0].trace_id]
    spans += [one._replace(parent_id=one.span_id) for one in same]
    spans += [one._replace(end_ns=None) for one in spans[:10]]
    spans += [one._replace(end_ns=one.start_ns - 10**9, span_id="f" * 16) for one in spans[:5]]
    both(spans_table(spans))


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
    both(
        spans_table(
            [
                one._replace(**{name: rng.choice(values) for name, values in wrong.items()})
                for one in spans
            ]
        )
    )
