"""The sentence on top of Engine: true of its requests, with the numbers of its table."""

from hypothesis import given
from hypothesis import strategies as some

from longpole_dashboard.model import text
from longpole_dashboard.model.engine import EngineView, Model, Share
from longpole_dashboard.model.quantiles import Quantile
from longpole_dashboard.model.verdict_lines.base import Line
from longpole_dashboard.model.verdict_lines.engine import of_engine
from longpole_dashboard.model.window import Filters

from .sentences import HOSTILE, assert_of, few, names


def quantile(per_mille: int, values: list[float]) -> Quantile:
    ordered, n = sorted(values), len(values)
    at = -(-n * per_mille // 1000)
    return Quantile(
        per_mille, n, ordered[at - 1] if n else None, None, None, max(values, default=None)
    )


def engine_model(title: str, queue: list[float], ttft: list[float]) -> Model:
    waits, firsts, gaps = ((quantile(500, each), quantile(950, each)) for each in (queue, ttft, []))
    num, nothing = max(len(queue), len(ttft), 1), Share(0, 0, 0)
    return Model(title, num, waits, firsts, gaps, nothing, nothing, ())


def engine_line(*models: Model) -> Line:
    return of_engine(EngineView(Filters(0, 1), 1, models, 0))


def test_the_queue_stands_beside_the_first_token_and_is_no_part_of_its_quantile() -> None:
    few_requests = engine_model("tiny", [1.0] * 72 + [1_160.0], [285.0] * 72 + [1_840.0])
    said = engine_line(engine_model("calm", [0.5] * 30, [9.0] * 30), few_requests)
    assert said.line == (
        "tiny: the longest wait in the queue was 1,160 ms, median 1.00 ms; the slowest first token "
        "took 1,840 ms, median 285 ms (n 73: no p95)."
    )
    assert said.more[0].startswith("Next, queue:")
    many = engine_model("tiny", [1.0] * 360 + [900.0] * 40, [300.0] * 360 + [1_200.0] * 40)
    assert engine_line(many).line == (
        "tiny: one request in 20 waits 900 ms or longer in the queue, median 1.00 ms; p95 time to "
        "first token is 1,200 ms, median 300 ms (n 400)."
    )
    short = engine_line(engine_model("tiny", [1.0] * 400, [300.0] * 400))
    assert "19 of 20 requests wait 1.00 ms or less in the queue" in short.line
    assert "Stages & slices" in short.more[0]


def test_what_an_engine_does_not_tell_is_said() -> None:
    assert "the time in the queue is not sent" in engine_line(engine_model("a", [], [5.0])).line
    assert "the time to first token is not sent" in engine_line(engine_model("a", [5.0], [])).line
    nothing = engine_line(engine_model("a", [], []))
    assert nothing.line.startswith("No verdict: a tells neither its queue nor its time to first")
    unlike = engine_line(engine_model("a", [5.0, 6.0], [9.0])).line
    assert "(n 2: no p95)" in unlike
    assert "(n 1: no p95)" in unlike


samples = some.lists(some.floats(0, 5_000, allow_subnormal=False), max_size=30)


@few
@given(
    some.lists(
        some.tuples(names, samples, samples, some.sampled_from([1, 20])), min_size=1, max_size=3
    )
)
def test_numbers_of_the_engine_are_those_of_its_table_and_hold_for_its_requests(
    found: list[tuple[str, list[float], list[float], int]],
) -> None:
    models = [engine_model(each, queue * k, ttft * k) for each, queue, ttft, k in found]
    said = engine_line(*models).line
    shown = []
    for model in models:
        shown.append(text.count(model.num_requests))
        shown += [
            f"{text.duration(q.value)} {text.duration(q.max)} {text.count(q.n)}"
            for q in (*model.queue, *model.ttft)
        ]
    assert_of(said, shown, ("19", "20"))
    if "one request in 20 waits" in said:
        told = [
            queue * k
            for (_, queue, _, k), model in zip(found, models, strict=True)
            if model.queue[1].is_shown and f"waits {text.duration(model.queue[1].value)}" in said
        ]
        assert any(
            20 * sum(value >= quantile(950, each).value for value in each) >= len(each)  # type: ignore[operator]
            for each in told
        )


def test_a_hostile_model_is_text_in_one_line() -> None:
    said = engine_line(engine_model(HOSTILE, [5.0], [9.0])).line
    assert said.startswith("a b[31m<img src=x>c")
    assert said.isprintable()
