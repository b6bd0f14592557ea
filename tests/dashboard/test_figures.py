"""Figures follow the one vocabulary of stages."""

from longpole.vocab import STAGE_COLOURS, Stage
from longpole_dashboard import theme
from longpole_dashboard.figures.overview import stage_area
from longpole_dashboard.model.clock import UTC_CLOCK, Clock
from longpole_dashboard.model.overview import Bin

from .sample import T0

MINUTE_NS = 60_000_000_000


def test_stages_are_stacked_in_the_order_a_request_meets_them_in_their_colours() -> None:
    stages = {"tool": 5.0, "queue": 2.0, "ttft_opaque": 9.0, "network": 1.0}
    figure = stage_area([Bin(T0, T0 + MINUTE_NS, 3, stages)], UTC_CLOCK)
    assert [bar.name for bar in figure.data] == ["network", "queue", "opaque TTFT", "tool"]
    assert [bar.marker.color for bar in figure.data] == [
        STAGE_COLOURS[stage]
        for stage in (Stage.NETWORK, Stage.QUEUE, Stage.TTFT_OPAQUE, Stage.TOOL)
    ]
    assert [bar.marker.pattern.shape for bar in figure.data] == ["", "", "/", ""]
    assert figure.layout.legend.itemclick == "toggleothers"


def test_a_stretch_without_traces_is_not_drawn() -> None:
    bins = (
        Bin(T0, T0 + MINUTE_NS, 1, {"tool": 5.0}),
        Bin(T0 + 9 * MINUTE_NS, T0 + 10 * MINUTE_NS, 1, {"tool": 7.0}),
    )
    figure = stage_area(bins, Clock("Europe/Berlin"))
    bar = figure.data[0]
    assert list(bar.x) == ["2026-09-14 13:30:30", "2026-09-14 13:39:30"]
    assert list(bar.width) == [60_000, 60_000]
    assert bar.hovertext[0] == "tool 5.00 ms, 1 workflow"
    # positions stay in UTC, labels are local
    assert figure.layout.xaxis.tickvals[0] == "2026-09-14 13:30:00"
    assert figure.layout.xaxis.ticktext[0] == "15:30<br>Sep 14, 2026"
    assert figure.layout.xaxis.title.text.endswith("Europe/Berlin")


def test_a_lone_label_stands_below_the_bar_not_on_the_edge() -> None:
    axis = stage_area([Bin(T0, T0 + MINUTE_NS // 60, 1, {"tool": 5.0})], UTC_CLOCK).layout.xaxis
    assert axis.tickvals == ("2026-09-14 13:30:00.500000",)
    assert axis.ticktext[0].startswith("13:30:00")


def test_no_bins_give_an_empty_figure() -> None:
    assert len(stage_area([], UTC_CLOCK).data) == 0


def test_every_stage_has_one_look_and_an_unknown_one_looks_like_other() -> None:
    assert list(theme.LOOKS) == [stage.value for stage in Stage]
    assert len({look.label for look in theme.LOOKS.values()}) == len(Stage)
    assert theme.look("nonsense") == theme.look(None) == theme.look("other")
