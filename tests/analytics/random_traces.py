"""Random traces in every state, and agents' traces as they ought to be, with ids as sent."""

from random import Random

from longpole.vocab import Kind, Span, Stage, Status

START_NS = 1_790_000_000_000_000_000
MS = 1_000_000
STAGES = [None, None, None, "tool", "prefill", "queue", "later_decode", "stream", "validation"]
FLAGS = [[], [], [], [], ["odd_clock"], ["b", "a"], ["ttft_first_event"], ["ttft_first_event"]]
FLAGS += [["stream_head"]]
TIMES = (
    *("ttft_ns", "ttft_attempt_ns", "last_content_ns", "retry_ns", "engine_admission_ns"),
    *("tokenize_ns", "queue_ns", "prefill_ns", "first_decode_ns", "engine_decode_ns"),
    *("engine_stream_ns", "engine_ttft_ns"),
)
TOKENS = ("input_tokens", "cached_input_tokens", "output_tokens")


def any_trace(random: Random, trace_id: str) -> list[Span]:
    """A trace in which anything may be wrong; nothing is, of a quarter."""
    is_messy = random.random() < 0.75
    ids = [f"{random.getrandbits(64):016x}" for _ in range(random.choice([1, 2, 4, 8, 14]))]
    length_ns = random.choice([12, 60, 2_000, 4 * MS, 300 * MS])
    call_share = random.choice([0.0, 0.2, 0.6, 0.9])
    clocks = random.choice([["a"], ["a"], ["a", None], ["a", "b"], ["a", "b", "c", None]])
    spans = []
    for place, span_id in enumerate(ids):
        above = ids[max(place - 4, 0) : place]
        if is_messy:
            above = [*above, *above, None, "f" * 16]
            if random.random() < 0.05:
                above = ids
        parent_id = random.choice(above or [None])
        span = _any_span(random, trace_id, span_id, parent_id, length_ns, call_share, clocks)
        if spans and random.random() < 0.3:  # siblings that overlap by little
            span = span._replace(end_ns=spans[-1].start_ns + random.randrange(25))
        spans.append(span)
    if is_messy and random.random() < 0.1:
        spans.append(spans[0]._replace(end_ns=START_NS + random.randrange(length_ns)))
    random.shuffle(spans)
    return spans


def _any_span(random, trace_id, span_id, parent_id, length_ns, call_share, clocks) -> Span:
    start_ns = START_NS + random.randrange(length_ns)
    end_ns = start_ns + random.choice([0, 1, -3, *(random.randrange(length_ns),) * 7])
    is_call = random.random() < call_share
    times = {name: _maybe(random, random.randrange(-2, length_ns)) for name in TIMES}
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id,
        name=random.choice(["a", "b", "c"]),
        kind=random.choice(list(Kind)).value,
        start_ns=start_ns,
        end_ns=None if random.random() < 0.06 else end_ns,
        received_ns=START_NS,
        service=random.choice(["app", None]),
        instance_id=random.choice(clocks) if random.random() < 0.98 else "",
        scope=random.choice(["x", "y"]),
        dialect=random.choice(["otel_genai", "otel_genai", "anthropic_sdk"]),
        status=random.choice([Status.UNSET, Status.OK, Status.ERROR]).value,
        stage=random.choice([*STAGES, "elsewhere"] if not is_call else [None, "tool", "other"]),
        operation=random.choice(["chat", "embeddings"] if is_call else [None, "invoke_workflow"]),
        is_model_call=is_call,
        is_engine=is_call and random.random() < random.choice([0.1, 0.4]),
        is_detached=random.random() < 0.07,
        is_streamed=random.choice([None, True, False]),
        response_id=_maybe(random, random.choice(["one", "two", "three", ""])),
        stream_state=random.choice([None, "completed", "error"]),
        num_attempts=random.choice([None, 0, 1, 4]),
        route=_maybe(random, random.choice("rs")),
        route_version=_maybe(random, "1"),
        prompt_version=_maybe(random, random.choice(["v1", "v1", "v2", ""])),
        slo_class=_maybe(random, "fast"),
        outcome=_maybe(random, random.choice(["accepted", "failed"])),
        failure_class=_maybe(random, "timeout"),
        time_to_useful_ns=_maybe(random, random.randrange(length_ns)),
        time_to_accepted_ns=_maybe(random, random.randrange(length_ns)),
        flags=random.choice(FLAGS),
        **(times if is_call else {}),
        **{name: _maybe(random, random.randrange(9)) for name in TOKENS if is_call},
    )


def _maybe(random, value):
    return value if random.random() < 0.35 else None


def agent_trace(random: Random, trace_id: str, num_turns: int = 2) -> list[Span]:
    """A workflow of turns: a call served by an engine, then tools beside one another."""
    known = {"trace_id": trace_id, "received_ns": START_NS, "scope": "longpole"}
    known |= {"dialect": "longpole", "service": "app", "route": "shop.question"}
    spans: list[Span] = []

    def add(name, parent_id, start_ns, end_ns, **facts) -> str:
        span_id = f"{random.getrandbits(64):016x}"
        given = {"kind": Kind.INTERNAL.value, "status": "unset", "instance_id": "app-1"}
        spans.append(
            Span(
                **{**known, **given, **facts},
                span_id=span_id,
                parent_id=parent_id,
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
            )
        )
        return span_id

    root = add(
        "invoke_workflow shop",
        None,
        START_NS,
        START_NS + 2_000 * num_turns * MS,
        operation="invoke_workflow",
        outcome="accepted",
        time_to_useful_ns=300 * MS,
    )
    at = START_NS + random.randrange(5 * MS)
    for _ in range(num_turns):
        at = _turn(random, add, root, at)
    last = spans[0]._replace(end_ns=at + random.randrange(MS))
    random.shuffle(spans)
    return [last if span.span_id == root else span for span in spans]


def _turn(random, add, root, at):
    phases = [random.randrange(1, 40) * MS for _ in range(7)]
    engine_ns, way_ns = sum(phases), random.randrange(3 * MS)
    end = at + engine_ns + 2 * way_ns
    call = add(
        "chat m",
        root,
        at,
        end,
        kind=Kind.CLIENT.value,
        is_model_call=True,
        operation="chat",
        is_streamed=True,
        ttft_ns=sum(phases[:5]) + 2 * way_ns,
        last_content_ns=sum(phases[:6]) + 2 * way_ns,
        prompt_version="v1",
        response_id=f"{random.getrandbits(64):x}",
        num_attempts=random.choice([1, 1, 1, 2]),
        **dict.fromkeys(TOKENS, 100),
    )
    if random.random() < 0.5:
        served = add(
            "llm_request",
            call,
            at + way_ns,
            at + way_ns + engine_ns,
            kind=Kind.SERVER.value,
            is_model_call=True,
            is_engine=True,
            operation="chat",
            instance_id="engine-1",
        )
        start = at + way_ns
        names = ("admission", "tokenize", "queue", "prefill", "first_decode")
        for stage, length in zip((*names, "later_decode", "stream"), phases, strict=True):
            facts = {"stage": Stage(stage).value, "instance_id": "engine-1"}
            add(stage, served, start, start + length, **facts)
            start += length
    done = end
    for _ in range(random.randrange(4)):
        stop = end + random.randrange(60 * MS)
        facts = {"stage": "tool", "operation": "execute_tool"}
        add("execute_tool t", root, end, stop, status=random.choice(["unset", "error"]), **facts)
        done = max(done, stop)
    if random.random() < 0.2:
        add("memory", root, end, done + 900 * MS, is_detached=True)
    return done
