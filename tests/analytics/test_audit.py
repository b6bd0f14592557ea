"""The audit: every line passes, fails and stays open where it should."""

import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.vocab import Kind, Stage, keys
from longpole_analytics.advisor import population
from longpole_analytics.audit import FAIL, PASS, UNSEEN
from longpole_analytics.audit_command import audit
from longpole_analytics.audit_flow import in_flight
from longpole_analytics.audit_lines import LINES, audited
from longpole_analytics.prices import shipped

from .advisor_traffic import Traffic
from .advisor_workloads import CLEAN, FAULTS, batch, chat
from .tables import spans_table
from .traces import span

CHECKS = [
    *("measured", "streaming", "no_buffering", "concurrency_capped", "backoff_with_jitter"),
    *("smallest_model", "cache_layers", "prompt_order", "speculation", "edge_and_cold_tax"),
]


def lines_of(spans):
    found = audited(population(spans_table(spans), shipped(), is_compiled=False))
    return {line.check: line for line in found.lines}


def traffic_of(seed, *workloads, num=40):
    traffic = Traffic(seed)
    for workload in workloads:
        workload(traffic, num)
    return traffic


def changed(spans, facts, attributes=None):
    """Model calls with other facts; both are made for each anew."""
    return [
        one._replace(
            **facts(k), attributes={**one.attributes, **(attributes(k) if attributes else {})}
        )
        if one.is_model_call
        else one
        for k, one in enumerate(spans)
    ]


def test_all_lines_are_there_in_order():
    found = lines_of(traffic_of(1, chat).spans)
    assert list(found) == CHECKS
    assert len(LINES) == len(CHECKS)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("not_streamed", "streaming"),
        ("buffered_streams", "no_buffering"),
        ("tiny_labels", "smallest_model"),
        ("premium_tier", "smallest_model"),
        ("unstable_prefix", "prompt_order"),
        ("cacheable_order", "prompt_order"),
        ("speculation", "speculation"),
    ],
)
def test_a_planted_fault_fails_its_line_and_names_its_traces(fault, check):
    traffic = traffic_of(2, chat, FAULTS[fault])
    found = lines_of(traffic.spans)
    assert found[check].grade == FAIL
    assert found[check].trace_ids
    bad = {one.trace_id for one in traffic.spans if one.route != "chat"}
    assert set(found[check].trace_ids) <= bad
    clean = lines_of(traffic_of(2, chat).spans)
    assert clean[check].grade != FAIL
    others = set(CHECKS) - {check}
    assert {c for c in others if found[c].grade == FAIL} == {
        c for c in others if clean[c].grade == FAIL
    }


@pytest.mark.parametrize("workload", CLEAN)
def test_clean_workloads_fail_only_for_caches_they_do_not_ask(workload):
    found = lines_of(traffic_of(3, CLEAN[workload]).spans)
    assert {check for check, line in found.items() if line.grade == FAIL} <= {"cache_layers"}


def test_quantiles_are_measured_where_routes_are_told_and_traces_are_enough():
    traffic = traffic_of(4, chat, num=220)
    found = lines_of(traffic.spans)["measured"]
    assert found.grade == PASS
    (row,) = found.slices
    assert row["n"] == 220
    assert row["p50_ms"] < row["p95_ms"]
    assert row["p99_ms"] is None  # 220 traces carry no p99
    assert lines_of(traffic.spans[:80])["measured"].grade == UNSEEN
    nameless = [one._replace(route=None) for one in traffic.spans]
    failed = lines_of(nameless)["measured"]
    assert failed.grade == FAIL
    assert failed.trace_ids


def test_a_page_that_paints_once_is_not_streamed_to_the_end():
    traffic = traffic_of(5, chat)
    pages = [
        span(
            f"{number:016x}", None, 0, 1, name="render", stage=Stage.RENDER, kind=Kind.CLIENT,
            trace_id=root.trace_id, attributes={keys.RENDER_NUM_UPDATES: updates},
        )._replace(parent_id=root.span_id, start_ns=root.start_ns, end_ns=root.end_ns)
        for number, (root, updates) in enumerate(
            ((one, "1") for one in traffic.spans if one.parent_id is None), start=7_000
        )
    ]  # fmt: skip
    assert lines_of([*traffic.spans, *pages])["streaming"].grade == FAIL
    many = [one._replace(attributes={keys.RENDER_NUM_UPDATES: "40"}) for one in pages]
    assert lines_of([*traffic.spans, *many])["streaming"].grade == PASS


# --- retries ------------------------------------------------------------------------------------
def retried(seed, waits_ms):
    """Calls whose attempts began after such waits; every attempt fails at once."""
    traffic = traffic_of(seed, chat)
    made = {}
    for k, one in enumerate(traffic.spans):
        if one.is_model_call:
            at, offsets = 0.0, [0]
            for wait in waits_ms(traffic.random):
                at += wait
                offsets.append(round(at * 1_000))
            made[k] = json.dumps(offsets)
    return changed(
        traffic.spans,
        lambda k: {"num_attempts": 3},
        lambda k: {keys.ATTEMPT_OFFSETS_US: made[k], keys.ATTEMPT_STATUS: '["500", "500", "200"]'},
    )


@pytest.mark.parametrize(
    ("waits", "grade"),
    [
        (lambda r: [r.uniform(200, 600), r.uniform(600, 1_400)], PASS),
        (lambda r: [500.0, 1_000.0], FAIL),  # no jitter
        (lambda r: [r.uniform(400, 600), r.uniform(400, 600)], FAIL),  # no back-off
        (lambda r: [r.uniform(0.1, 5), r.uniform(0.1, 5)], FAIL),  # no wait
    ],
)
def test_back_off_needs_growth_and_jitter(waits, grade):
    found = lines_of(retried(6, waits))["backoff_with_jitter"]
    assert found.grade == grade, found
    assert found.trace_ids


def test_a_wait_that_is_told_counts_without_the_attempt_before_it():
    traffic = traffic_of(7, chat)
    spans = changed(
        traffic.spans, lambda k: {"num_attempts": 2}, lambda k: {keys.RETRY_WAIT: "0.5"}
    )
    assert lines_of(spans)["backoff_with_jitter"].grade == FAIL


# --- concurrency --------------------------------------------------------------------------------
def test_refused_calls_fail_the_cap():
    spans = changed(
        traffic_of(8, chat).spans,
        lambda k: {},
        lambda k: {keys.ATTEMPT_STATUS: '["429", "200"]'} if k % 6 == 0 else {},
    )
    found = lines_of(spans)["concurrency_capped"]
    assert found.grade == FAIL
    assert found.evidence[0].value > 0.01


def test_a_cap_shows_as_calls_that_pile_up_at_it():
    traffic, free = Traffic(9, every_ms=10), [0.0] * 4
    for _ in range(120):
        with traffic.workflow("busy") as run:
            place = free.index(min(free))
            run.now = max(run.now, free[place])
            run.chat(size=1_200, cached=1_024, out=20)
            free[place] = run.now
    found = lines_of(traffic.spans)["concurrency_capped"]
    assert found.grade == PASS
    assert found.evidence[1].value == 4


def test_calls_in_flight_are_counted_at_their_start():
    traffic = Traffic(10)
    pop_of = lambda spans: population(spans_table(spans), shipped(), is_compiled=False)  # noqa: E731
    with traffic.workflow("three") as run:
        at = run.now
        for late in (0, 10, 20):
            run.chat(out=50, at=at + late)
    assert in_flight(pop_of(traffic.spans).calls)["in_flight"].to_list() == [1, 2, 3]


# --- caches, taxes, guesses ---------------------------------------------------------------------
def looked_up(seed, kinds, hit="true"):
    traffic = Traffic(seed)
    for n in range(60):
        with traffic.workflow("cached") as run:
            for kind in kinds:
                given = {keys.APP_CACHE_KIND: kind, keys.APP_CACHE_HIT: hit if n % 3 else "false"}
                run.step(f"cache {kind}", 2, Stage.OTHER, attributes=given)
            run.chat(size=1_500, cached=1_024)
    return traffic.spans


def test_three_cache_layers_must_be_hit():
    assert lines_of(looked_up(11, ("exact", "semantic")))["cache_layers"].grade == PASS
    missing = lines_of(looked_up(11, ("exact",)))["cache_layers"]
    assert (missing.grade, "semantic" in missing.reason) == (FAIL, True)
    idle = lines_of(looked_up(11, ("exact", "semantic"), hit="false"))["cache_layers"]
    assert (idle.grade, "never hit" in idle.reason) == (FAIL, True)


def test_of_other_senders_a_missing_lookup_says_nothing():
    spans = [one._replace(scope="other", dialect="otel_genai") for one in looked_up(12, ())]
    assert lines_of(spans)["cache_layers"].grade == UNSEEN


def test_both_taxes_must_be_told():
    plain = traffic_of(13, chat).spans
    edge = changed(plain, lambda k: {}, lambda k: {keys.CONNECTION_NEW: "false"})
    both = changed(edge, lambda k: {"is_cold_start": k % 5 == 0})
    grades = [lines_of(spans)["edge_and_cold_tax"].grade for spans in (plain, edge, both)]
    assert grades == [UNSEEN, FAIL, PASS]


@pytest.mark.parametrize(("every", "grade"), [(2, PASS), (20, FAIL), (3, UNSEEN)])
def test_guesses_are_judged_by_their_interval(every, grade):
    traffic = Traffic(14)
    for n in range(80):
        with traffic.workflow("guess") as run:
            state = "used" if n % every == 0 else "expired"
            run.step("speculation next", 50, Stage.OTHER, is_detached=True, moves=False,
                     attributes={keys.SPECULATION_STATE: state})  # fmt: skip
            run.chat()
    assert lines_of(traffic.spans)["speculation"].grade == grade


def test_batch_work_needs_no_stream():
    assert lines_of(traffic_of(15, batch).spans)["streaming"].grade == UNSEEN


# --- the command --------------------------------------------------------------------------------
def run(*arguments, exit_code=0):
    result = CliRunner().invoke(audit, [str(a) for a in arguments], env={"COLUMNS": "200"})
    if result.exit_code != exit_code and result.exception:
        raise result.exception
    return result


def test_the_document_and_the_text_agree(tmp_path):
    path = tmp_path / "spans.parquet"
    pq.write_table(spans_table(traffic_of(16, chat, FAULTS["not_streamed"]).spans), path)
    document = json.loads(run(path, "--json").stdout)
    assert document["schema"] == "longpole.audit/1"
    assert [line["check"] for line in document["lines"]] == CHECKS
    counts = [document[f"num_{name}"] for name in ("pass", "fail", "not_observable")]
    assert sum(counts) == len(CHECKS)
    assert {line["grade"] for line in document["lines"]} <= {PASS, FAIL, UNSEEN}
    text = run(path).stdout
    head = f"80 traces: {counts[0]} pass, {counts[1]} fail, {counts[2]} not observable"
    assert text.startswith(head)
    for line in document["lines"]:
        assert line["question"] in text
        assert line["reason"]
        assert set(line) >= {"grade", "evidence", "trace_ids", "next_step"}
    assert json.loads(run(path, "--where", "route = 'chat'", "--json").stdout)["num_traces"] == 40


def test_nothing_to_grade_is_exit_code_4(tmp_path):
    from longpole.errors import NotEnoughData

    pq.write_table(spans_table(traffic_of(17, chat, num=2).spans), tmp_path / "few.parquet")
    with pytest.raises(NotEnoughData):
        run(tmp_path / "few.parquet", "--where", "route = 'none'", exit_code=4)
