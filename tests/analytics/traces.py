"""Made-up traces: spans with few facts, and strategies for messy ones."""

from hypothesis import strategies as st

from longpole.vocab import Kind, Span, Stage, Status
from longpole_analytics.tree import PathSpan

MS = 1_000_000
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def span(span_id, parent_id, start_ms, end_ms, **facts):
    """A span in milliseconds; an engine's facts in nanoseconds as the record has them."""
    known = {
        "trace_id": TRACE_ID,
        "name": span_id,
        "kind": Kind.INTERNAL,
        "received_ns": 0,
        "service": "app",
        "instance_id": "app-1",
        "scope": "longpole",
        "dialect": "longpole",
        "status": Status.UNSET,
    }
    end_ns = None if end_ms is None else round(end_ms * MS)
    return Span(
        **{
            **known,
            **facts,
            "span_id": span_id,
            "parent_id": parent_id,
            "start_ns": round(start_ms * MS),
            "end_ns": end_ns,
        }
    )


def call(span_id, parent_id, start_ms, end_ms, **facts):
    """A client's model call."""
    return span(
        span_id,
        parent_id,
        start_ms,
        end_ms,
        **{"is_model_call": True, "operation": "chat", "kind": Kind.CLIENT, **facts},
    )


def streamed(span_id, parent_id, start_ms, end_ms, ttft_ms, last_ms, **facts):
    """A client's streamed model call with its times since the call was made."""
    times = {"is_streamed": True, "ttft_ns": ttft_ms * MS, "last_content_ns": last_ms * MS}
    return call(span_id, parent_id, start_ms, end_ms, **{**times, **facts})


ENGINE_CHILDREN = {
    "admission": Stage.ADMISSION,
    "tokenize": Stage.TOKENIZE,
    "queue": Stage.QUEUE,
    "prefill": Stage.PREFILL,
    "first_decode": Stage.FIRST_DECODE,
    "decode": Stage.LATER_DECODE,
    "stream": Stage.STREAM,
}


def engine(span_id, parent_id, start_ms, phases_ms, **facts):
    """An engine's server span and its children, laid end to end on the engine's own clock."""
    spans, at = [], start_ms
    for name, duration_ms in phases_ms.items():
        spans.append(
            span(
                f"{span_id}.{name}",
                span_id,
                at,
                at + duration_ms,
                name=name,
                stage=ENGINE_CHILDREN[name],
                instance_id="engine-1",
            )
        )
        at += duration_ms
    own = {"is_engine": True, "is_streamed": None, "instance_id": "engine-1", "kind": Kind.SERVER}
    return [call(span_id, parent_id, start_ms, at, **{**own, **facts}), *spans]


_IDS = [f"s{number}" for number in range(12)]
_TIMES = st.integers(0, 60)


def _at_scale(found):
    """Ticks as nanoseconds, or so long that clocks differ by more than a tolerance."""
    spans, tick_ns = found
    return [
        s._replace(
            start_ns=s.start_ns * tick_ns, end_ns=None if s.end_ns is None else s.end_ns * tick_ns
        )
        for s in spans
    ]


_messy_in_ticks = st.lists(
    st.builds(
        PathSpan,
        span_id=st.sampled_from(_IDS),
        parent_id=st.sampled_from([None, "", "lost", *_IDS]),
        start_ns=_TIMES,
        end_ns=st.one_of(st.none(), _TIMES),
        stage=st.sampled_from([Stage.OTHER, Stage.TOOL, Stage.PREFILL]),
        instance=st.sampled_from([None, "a", "a", "b", "c"]),
        is_detached=st.sampled_from([False, False, False, True]),
        is_stream=st.sampled_from([False, False, True]),
        kind=st.sampled_from([Kind.INTERNAL, Kind.PRODUCER, Kind.CONSUMER]),
    ),
    max_size=14,
)
messy_path_spans = st.tuples(_messy_in_ticks, st.sampled_from([1, 60_000, MS])).map(_at_scale)
"""Any mess: duplicates, cycles, lost parents, negative and unfinished spans, skewed clocks."""


@st.composite
def well_formed(draw, max_size=10):
    """A tree of finished spans of one process under one root; children may overhang."""
    spans = [PathSpan("r", None, 10, 50 + draw(st.integers(0, 40)))]
    for number in range(draw(st.integers(0, max_size))):
        parent = spans[draw(st.integers(0, len(spans) - 1))]
        start = draw(st.integers(0, 100))
        spans.append(
            PathSpan(
                f"s{number}",
                parent.span_id,
                start,
                start + draw(st.integers(0, 60)),
                draw(st.sampled_from([Stage.OTHER, Stage.TOOL, Stage.PREFILL])),
                is_detached=draw(st.sampled_from([False, False, False, True])),
            )
        )
    return draw(st.permutations(spans))
