"""The knobs of ``longpole lab whatif``: one is turned between the two sides of each."""

from typing import Final

from longpole.errors import UsageError
from longpole.vocab import Stage
from longpole_dashboard.lab.recipe import App, Load, Replicas, Side
from longpole_dashboard.lab.whatif import (
    Knob,
    faster,
    fewer_input_tokens,
    fewer_output_tokens,
    other_rate,
    shorter,
    side_by_side,
)
from longpole_engine.load.proxy import Fault

_FLOW: Final = Side(App(retrieval_s=0.2, tools_s=(0.1, 0.1, 0.1), answer=6))
_WORDY: Final = Side(App(answer=60), Load(of_capacity=0.2, num=40))
_LONG: Final = Side(App(question=250, question_spread=0.8, answer=4), Load(of_capacity=0.2, num=80))
"""Lengths lie far apart: the line that a prediction moves along is known by them."""
_SEAT: Final = Side(
    App(answer=20), Load(of_capacity=0.75, num=60), replicas=Replicas({"max_num_seqs": 1})
)

_LIST: Final = (
    Knob(
        "faster-search",
        "the search takes half as long",
        _FLOW,
        _FLOW.but(retrieval_s=0.1),
        faster(Stage.RETRIEVAL, 0.5),
    ),
    Knob(
        "faster-tools",
        "every tool takes half as long",
        _FLOW.but(tools_s=(0.2, 0.2)),
        _FLOW.but(tools_s=(0.1, 0.1)),
        faster(Stage.TOOL, 0.5),
    ),
    Knob(
        "parallel-tools",
        "tools run side by side",
        _FLOW.but(is_serial=True),
        _FLOW,
        side_by_side(Stage.TOOL),
    ),
    Knob(
        "no-approval",
        "nobody must approve",
        _FLOW.but(approval_s=0.4),
        _FLOW,
        faster(Stage.HUMAN_WAIT, 1.0),
    ),
    Knob(
        "no-refusals",
        "the provider refuses nothing",
        _FLOW.but(faults={Fault.RATE_LIMIT: 0.4}, is_even=True),
        _FLOW,
        faster(Stage.RETRY, 1.0),
    ),
    Knob(
        "nearer",
        "the way to the engines takes 150 ms less",
        _FLOW.but(delay_s=0.2),
        _FLOW.but(delay_s=0.05),
        shorter("network_ms", 150.0),
    ),
    Knob(
        "faster-reader",
        "the application reads without pauses",
        Side(App(retrieval_s=0.1, answer=24, read_pause_s=0.015), Load(num=60)),
        Side(App(retrieval_s=0.1, answer=24), Load(num=60)),
        faster(Stage.STREAM, 1.0),
    ),
    Knob(
        "shorter-answers",
        "answers are half as long",
        _WORDY,
        _WORDY.but(answer=30),
        fewer_output_tokens(0.5),
    ),
    Knob(
        "shorter-questions",
        "what follows the cached prefix is half as long",
        _LONG,
        _LONG.but(question=125),
        fewer_input_tokens(0.5),
    ),
    Knob(
        "half-the-rate",
        "half as many requests come to an engine of one seat",
        _SEAT,
        _SEAT.but(of_capacity=0.375),
        other_rate(0.5, servers=1),
    ),
)
KNOBS: Final = {knob.name: knob for knob in _LIST}


def find(name: str) -> Knob:
    """A knob.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in KNOBS:
        raise UsageError(f"no knob '{name}': choose {', '.join(KNOBS)}")
    return KNOBS[name]
