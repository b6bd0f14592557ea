import json
from pathlib import Path
from typing import Any

import pytest

from longpole.call import MAX_OFFSETS, Call, Kind, StreamState, Usage
from longpole.vocab import keys

CASES = json.loads((Path(__file__).parent / "data" / "ttft_tpot.json").read_text())["cases"]
NS = 1_000_000


def fed(facts: dict[str, Any]) -> Call:
    call = Call(facts["start"] * NS, is_streamed=facts["stream"])
    for at in facts.get("attempts", [facts["start"]]):
        call.attempt(at * NS)
    for at, kind, tokens in facts["events"]:
        call.event(Kind(kind), at * NS, tokens)
    call.use(Usage(output_tokens=facts["usage_output"]))
    call.use(Usage(reasoning_tokens=facts.get("usage_reasoning")))
    call.end(facts["end"] * NS)
    return call


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_binding_vectors_hold(case: dict[str, Any]) -> None:
    times, expected = fed(case["call"]).times(), case["expect"]

    def ms(ns: float | None) -> float | None:
        return None if ns is None else ns / NS

    assert ms(times.e2e_ns) == expected["e2e_ms"]
    assert ms(times.ttft_ns) == expected["ttft_ms"]
    assert ms(times.ttft_attempt_ns) == expected["ttft_attempt_ms"]
    assert ms(times.ttfv_ns) == expected["ttfv_ms"]
    tpot = expected["tpot_ms"]
    assert ms(times.tpot_ns) == (None if tpot is None else pytest.approx(tpot, rel=1e-6))
    assert ms(times.decode_ns) == expected["decode_ms"]
    assert ms(times.tail_ns) == expected["tail_ms"]
    assert [ms(gap) for gap in times.gaps_ns] == expected["chunk_gaps_ms"]
    assert times.tokens_per_chunk == expected["tokens_per_chunk"]
    assert list(times.flags) == expected["flags"]


def stream(*at_ms: int, end_ms: int = 1000, output: int | None = 8) -> Call:
    call = Call(0, is_streamed=True)
    call.attempt(0)
    for at in at_ms:
        call.event(Kind.TEXT, at * NS)
    call.use(Usage(output_tokens=output))
    call.end(end_ms * NS, StreamState.COMPLETED)
    return call


def test_a_stall_is_a_gap_over_five_medians_and_over_250_ms() -> None:
    times = stream(10, 20, 30, 40, 600, 610).times()
    assert (times.num_stalls, times.stall_ns) == (1, 560 * NS)
    assert stream(10, 20, 30, 40, 200, 210).times().num_stalls == 0
    assert stream(100, 500, 900).times().num_stalls == 0


def test_gap_percentiles_are_nearest_rank() -> None:
    times = stream(0, 1, 3, 6, 10).times()
    assert (times.gap_p50_ns, times.gap_p99_ns, times.gap_max_ns) == (2 * NS, 4 * NS, 4 * NS)


def test_one_chunk_has_no_gaps_and_no_stall_count() -> None:
    times = stream(10).times()
    assert times.gap_p50_ns is None
    assert times.num_stalls is None


def test_attempts_nobody_saw_are_unknown_not_one() -> None:
    call = Call(0, is_streamed=False)
    call.end(5)
    assert call.times().num_attempts is None
    assert keys.RESEND_COUNT not in call.attributes()


def test_retry_time_runs_to_the_attempt_that_succeeded() -> None:
    call = Call(100, is_streamed=True)
    for at in (130, 500, 900):
        call.attempt(at)
    call.end(1000)
    times = call.times()
    assert (times.num_attempts, times.retry_ns) == (3, 800)


def test_a_later_usage_without_a_field_keeps_the_earlier_value() -> None:
    early, late = Usage(10, 3, None, 1, None), Usage(None, None, None, 30, 0)
    assert early.merged(late) == Usage(10, 3, None, 30, 0)


def test_a_count_below_one_with_content_is_no_count() -> None:
    times = stream(10, 20, output=0).times()
    assert times.tokens_per_chunk is None
    assert "tokens_unknown" in times.flags


def test_tokens_known_for_some_chunks_only_are_unknown() -> None:
    call = Call(0, is_streamed=True)
    call.event(Kind.TEXT, 1, 2)
    call.event(Kind.TEXT, 2)
    call.end(3)
    assert call.times().flags == ("tokens_unknown",)


def test_attributes_are_seconds_and_leave_unknowns_out() -> None:
    found = stream(200, 400).attributes()
    assert found[keys.TIME_TO_FIRST_CONTENT] == 0.2
    assert found[keys.CHUNK_OFFSETS_US] == (200_000, 400_000)
    assert found[keys.STREAM_STATE] == "completed"
    assert keys.INPUT_TOKENS not in found
    assert None not in found.values()
    assert keys.CHUNK_OFFSETS_US not in stream(1, 2).attributes(with_offsets=False)


def test_offsets_are_thinned_to_the_cap() -> None:
    offsets = stream(*range(MAX_OFFSETS * 2 + 1)).attributes()[keys.CHUNK_OFFSETS_US]
    assert isinstance(offsets, tuple)
    assert len(offsets) <= MAX_OFFSETS
    assert offsets[0] == 0


def test_an_unfinished_call_has_no_times() -> None:
    with pytest.raises(ValueError, match="not ended"):
        Call(0, is_streamed=True).times()
