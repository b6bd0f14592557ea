"""The page of comparisons: its figures are those of ``longpole compare``."""

import random
from collections.abc import Iterator

import pytest

from longpole.vocab import Span, Stage
from longpole_dashboard.figures import compared
from longpole_dashboard.model.compare import TIME, TRACES, Asked, compare, two_traces
from longpole_dashboard.model.scorecard import Moved, change, contrasts, mix_lines, moved
from longpole_dashboard.model.window import SECOND_NS, Filters, Match

from .conftest import MemoryStore
from .drawn import Held, drawn, holding, plain, texts
from .sample import T0, workflow

NUM = 400
HALF = T0 + NUM // 2 * SECOND_NS
BEFORE = Filters(T0, HALF)
NOW = Filters(HALF, T0 + NUM * SECOND_NS, baseline=BEFORE, versus="previous period")
CODES = (0, 3, 4)


def traffic() -> list[Span]:
    """The second half is slower, and asks the slow route more often; arms differ in nothing."""
    draw = random.Random(8)
    found: list[Span] = []
    for i in range(NUM):
        is_late = i >= NUM // 2
        is_slow = draw.random() < (0.75 if is_late else 0.35)
        ms = draw.lognormvariate(5.0, 0.2) * (1.6 if is_slow else 1.0)
        own = workflow(
            i + 1,
            at_s=i,
            stages={Stage.TOOL: ms * (1.3 if is_late else 1.0), Stage.RETRIEVAL: 30.0},
            route="slow" if is_slow else "it's",
            prompt_version="v2" if is_late else "v1",
        )
        arm = {"experiment.arm": "b" if i % 2 else "a"}
        found += [own[0]._replace(attributes=arm), *own[1:]]
    return found


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    with holding(tmp_path_factory.mktemp("compare"), traffic()) as found:
        yield found


WHOLE = Filters(T0, NOW.end_ns)
ARMED = Filters(T0, NOW.end_ns, (Match("route", "it's"),))
BY_VERSION = Filters(
    T0,
    NOW.end_ns,
    (Match("route", "slow"),),
    Filters(T0, NOW.end_ns, (Match("route", "slow"), Match("prompt_version", "v1"))),
    "prompt v1",
)


@pytest.mark.parametrize(
    ("filters", "asked", "names"),
    [
        (NOW, Asked(), ("previous period", "this period")),
        (NOW, Asked(TIME, is_swapped=True, target="ttft_ms"), ("this period", "previous period")),
        (WHOLE, Asked(), ("prompt_version v1", "prompt_version v2")),
        (ARMED, Asked("experiment.arm", "b"), ("experiment.arm b", "experiment.arm a")),
        (BY_VERSION, Asked(), ("prompt v1", "not prompt v1")),
    ],
)
def test_the_page_and_its_command_say_the_same(
    held: Held, filters: Filters, asked: Asked, names: tuple[str, str]
) -> None:
    shown = compare(filters, asked, held.reader)
    assert shown.names == names
    assert shown.document is not None
    assert held.run(shown.command, exit_codes=CODES) == plain(shown.document)
    assert min(shown.document["n"].values()) > 20
    assert "overlap" not in shown.document["flags"]
    html, markdown = shown.written
    assert "<script" not in html
    assert shown.document["verdict"] in markdown


def test_a_slower_half_is_slower_and_mix_and_time_make_the_whole_change(held: Held) -> None:
    shown = compare(NOW, Asked(), held.reader).document
    assert shown is not None
    rows = {row.name: row for row in moved(shown)}
    middle = rows["p50 whole workflow"]
    assert middle.tone == "worse"
    assert middle.low is not None
    assert middle.low > 0
    assert rows["p50 TTFT"].tone == "grey"
    assert rows["p99 whole workflow"].why == "too few samples"
    assert shown["mix"]["is_standardised"]
    lines = mix_lines(shown)
    assert "route" in lines[0]
    row = next(r for r in shown["metrics"] if r["name"] == "e2e_ms" and r["quantile"] == 0.5)
    whole = row["raw"][1] / row["raw"][0]
    of_mix = whole / row["ratio"]
    assert of_mix > 1.05
    assert row["ratio"] > 1.1
    told = next(line for line in lines if line.startswith("p50"))
    assert f"{change(whole - 1)} as recorded" in told
    assert f"{change(of_mix - 1)} is the mix" in told


def test_too_little_is_a_verdict(held: Held) -> None:
    shown = compare(Filters(T0, T0 + 15 * SECOND_NS), Asked("experiment.arm"), held.reader)
    assert shown.document is not None
    assert shown.document["verdict"] == "inconclusive"
    assert all(row.tone == "grey" for row in moved(shown.document))
    assert held.run(shown.command, exit_codes=(4,)) == plain(shown.document)


def test_nothing_to_compare_with_is_said(held: Held, store: MemoryStore) -> None:
    shown = compare(Filters(HALF, NOW.end_ns), Asked(TIME), held.reader)
    assert shown.document is None
    assert "nothing before" in shown.reason
    assert {each.name for each in shown.dimensions} >= {"experiment.arm", "route"}
    assert compare(Filters(0, 1), Asked(), store).document is None
    assert compare(NOW, Asked(TRACES), held.reader).document is None


def test_two_traces_stand_beside_each_other_as_explain_tells_them(held: Held) -> None:
    ids = (f"{1:032x}", f"{NUM:032x}")
    pair = two_traces(*ids, held.reader)
    assert pair.missing == ()
    for at, trace_id in enumerate(ids):
        told = held.run(f"longpole explain {trace_id} --json")
        stages = {each["stage"]: each["critical_ms"] for each in told["stages"]}
        own = {each.stage: each[1 + at] for each in pair.stages if each[1 + at]}
        assert own == pytest.approx({name: ms for name, ms in stages.items() if ms})
        assert pair.walls_ms[at] == pytest.approx(sum(own.values()))
    assert two_traces(ids[0], "f" * 32, held.reader).missing == ("f" * 32,)


def test_the_page_says_the_verdict_and_keeps_two_sides_in_the_address(held: Held) -> None:
    asked = {"of": "prompt_version", "base": "v2", "cand": "v1", "target": "ttft_ms"}
    with drawn("compare", held.folder, **asked) as app:
        assert app.selectbox(key="choice-base").value == "v2"
        assert app.selectbox(key="choice-target").value == "ttft_ms"
        said = texts(app)
        next(button for button in app.button if button.label == "Swap").click().run()
        assert (app.query_params["base"], app.query_params["cand"]) == ("v1", "v2")
    assert "prompt_version v1 against prompt_version v2: " in said
    assert "--target ttft_ms" in said


def test_rates_move_by_points_and_means_by_their_kind() -> None:
    mean = {"base": 2.0, "cand": 3.0, "value": 1.5, "ci95": [1.2, 1.9]}
    document = {
        "rates": [
            {
                "name": "error_rate",
                "base": 0.01,
                "cand": 0.02,
                "difference": 0.01,
                "ci95": [0, 0.02],
            }
        ],
        "means": [
            {"name": "output_tokens", "kind": "ratio", **mean},
            {"name": "quality", "kind": "difference", **mean, "value": 1.0, "ci95": None},
        ],
    }
    assert [tuple(each) for each in contrasts(document)] == [
        ("error rate", "1.00 %", "2.00 %", "+1.00 points", "+0.00 to +2.00 points"),
        ("mean output tokens", "2.00", "3.00", "+50 %", "+20 % to +90 %"),
        ("mean quality", "2.00", "3.00", "1.00", "—"),
    ]


def test_a_change_is_told_by_sign_and_colour_and_what_is_unknown_has_no_mark() -> None:
    rows = (
        Moved("p50 a", 10.0, 20.0, 1.0, 0.5, 1.5, "worse", 100, ""),
        Moved("p50 b", 10.0, 9.0, -0.1, -0.3, 0.1, "grey", 100, ""),
        Moved("p99 b", 10.0, 9.0, None, None, None, "grey", 100, "too few samples"),
        Moved("p95 c", 10.0, 5.0, -0.5, -0.6, None, "better", 100, ""),
    )
    figure = compared.changes(rows, 0.05)
    assert [(mark.name, list(mark.y)) for mark in figure.data] == [
        ("faster", ["p95 c"]),
        ("slower", ["p50 a"]),
        ("not decided", ["p50 b"]),
    ]
    assert len({mark.marker.symbol for mark in figure.data}) == 3
    assert list(figure.data[1].error_x.array) == [50.0]
    assert list(figure.data[0].error_x.array) == [0.0]
    assert [change(each) for each in (None, 0.0, 0.25, -0.012)] == ["—", "0 %", "+25 %", "-1.2 %"]
