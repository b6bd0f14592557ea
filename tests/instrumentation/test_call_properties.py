from hypothesis import given
from hypothesis import strategies as st

from longpole.call import Call, Kind, Usage
from longpole.vocab import keys

moments = st.lists(st.integers(0, 10**11), max_size=40).map(sorted)
kinds = st.sampled_from(list(Kind))
counts = st.one_of(st.none(), st.integers(0, 500))


@st.composite
def calls(draw: st.DrawFn) -> Call:
    start = draw(st.integers(0, 10**12))
    call = Call(start, is_streamed=draw(st.booleans()))
    offsets = draw(moments)
    for at in draw(st.lists(st.integers(0, 10**9), max_size=3).map(sorted)):
        call.attempt(start + at)
    if call.is_streamed:
        for at in offsets:
            call.event(draw(kinds), start + at, draw(counts))
    call.use(Usage(output_tokens=draw(counts), reasoning_tokens=draw(counts)))
    call.end(start + (offsets[-1] if offsets else 0) + draw(st.integers(0, 10**9)))
    return call


@given(calls())
def test_the_parts_sum_to_the_whole_wherever_tpot_is_known(call: Call) -> None:
    times = call.times()
    if times.tpot_ns is None:
        return
    assert times.ttft_ns is not None
    assert times.tail_ns is not None
    assert times.tokens_per_chunk is not None
    assert times.num_chunks is not None
    num_tokens = round(times.tokens_per_chunk * times.num_chunks)
    whole = times.ttft_ns + times.tpot_ns * (num_tokens - 1) + times.tail_ns
    assert abs(whole - times.e2e_ns) <= 1e-6 * max(times.e2e_ns, 1)


@given(calls())
def test_no_time_is_negative_and_unknown_is_never_zero(call: Call) -> None:
    times = call.times()
    for value in (times.ttft_ns, times.ttfv_ns, times.decode_ns, times.tail_ns, times.tpot_ns):
        assert value is None or value >= 0
    has_content = times.num_chunks is not None and times.num_chunks > 0
    assert (times.ttft_ns is not None) == has_content
    assert (times.tail_ns is not None) == has_content
    assert None not in call.attributes().values()


@given(calls())
def test_gaps_span_the_decode_time(call: Call) -> None:
    times = call.times()
    assert sum(times.gaps_ns) == (times.decode_ns or 0)
    assert (times.gap_max_ns or 0) == max(times.gaps_ns, default=0)
    assert call.attributes().get(keys.CHUNK_COUNT) == times.num_chunks
