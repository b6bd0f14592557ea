"""The figures of Explore: what is drawn is what was counted, and no name is read as a tag."""

from math import log10

from longpole_dashboard.figures.explore import differences, extra_time, heat_map
from longpole_dashboard.model.box import Box
from longpole_dashboard.model.clock import UTC_CLOCK
from longpole_dashboard.model.explore import Difference, Extra
from longpole_dashboard.model.heatmap import Heat
from longpole_dashboard.model.window import SECOND_NS, Filters

from .sample import T0

HOSTILE = "<img src=x onerror=alert(1)>"
WINDOW = Filters(T0, T0 + 160 * SECOND_NS)
HEAT = Heat(
    WINDOW,
    "ttft_ms",
    num=111,
    width_ns=SECOND_NS,
    low=100.0,
    step=1.1,
    cells=((0, 0, 1), (2, 3, 10), (2, 0, 100)),
    objective=2_000.0,
)


def test_the_map_has_a_cell_for_each_count_and_edges_around_it() -> None:
    figure = heat_map(HEAT, None, UTC_CLOCK)
    (drawn,) = figure.data
    assert (len(drawn.x), len(drawn.y)) == (4, 5)
    assert [z for row in drawn.z for z in row if z is not None] == [0.0, 2.0, 1.0]
    assert drawn.z[3][2] == log10(10)
    assert drawn.text[3][2] == "10 workflows"
    assert figure.layout.dragmode == "select"
    assert figure.layout.yaxis.type == "log"


def test_the_objective_is_within_the_map_even_if_nothing_is_that_slow() -> None:
    figure = heat_map(HEAT, None, UTC_CLOCK)
    low, high = figure.layout.yaxis.range
    assert low < log10(2_000) < high
    # labels on a logarithmic axis are placed by logarithm
    label = next(each for each in figure.layout.annotations if "objective" in each.text)
    assert label.y == log10(2_000)
    assert label.text == "objective 2,000 ms"


def test_an_open_box_is_framed_to_the_edges_of_the_map() -> None:
    figure = heat_map(HEAT, Box(low=1_000.0), UTC_CLOCK)
    frame = next(each for each in figure.layout.shapes if each.type == "rect")
    assert (frame.x0, frame.x1) == ("2026-09-14 13:30:00", "2026-09-14 13:32:40")
    assert frame.y0 == 1_000.0
    assert log10(frame.y1) == figure.layout.yaxis.range[1]
    beyond = heat_map(HEAT, Box(T0 - 1, T0 + 10**12, 1e9, 1e10), UTC_CLOCK)
    assert len(beyond.layout.shapes) == 2


def test_colours_go_the_other_way_on_a_dark_page() -> None:
    light, dark = (heat_map(HEAT, None, UTC_CLOCK, is_dark=d).data[0].colorscale for d in (0, 1))
    assert [colour for _, colour in light] == [colour for _, colour in reversed(dark)]


def test_differences_are_paired_bars_and_grey_while_undecided() -> None:
    found = (
        Difference((("prompt_version", HOSTILE),), 40, 0.9, 0.1, 9.0, 4.0, 20.0, is_cause=True),
        Difference((("route_version", "a"),), 20, 0.5, 0.49, 1.02, 0.9, 1.2),
        Difference((("route", "r"),), 40, 1.0, 1.0, None, None, None),
    )
    figure = differences(found)
    others, selected = figure.data
    assert list(selected.x) == [100.0, 50.0, 90.0]
    assert list(others.x) == [100.0, 49.0, 10.0]
    colours = selected.marker.color
    assert colours[0] == colours[1] != colours[2]
    assert "&lt;img" in figure.layout.yaxis.ticktext[2]
    assert "<img" not in figure.to_json().replace("\\u003c", "<")
    assert [each.text.strip() for each in figure.layout.annotations] == [
        "",
        "1.0x (0.90 to 1.2)",
        "9.0x (4.0 to 20)",
    ]


def test_extra_time_is_signed_and_most_is_on_top() -> None:
    (bars,) = extra_time([Extra("prefill", 2_351.0), Extra("tool", -370.0)]).data
    assert list(bars.y) == ["tool", "prefill"]
    assert list(bars.text) == ["-370 ms", "+2,350 ms"]
    assert list(bars.x) == [-370.0, 2_351.0]
