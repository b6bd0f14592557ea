"""Analytics: pure functions from spans and tables to answers.

No clock, no disk, no network and no unseeded randomness here (``commands.py`` apart, which opens
a store and prints): table in, value out, so everything can be tested with made-up traces and used
in a notebook. Functions that share their file's name are imported from it:
``longpole_analytics.critical_path.critical_path``, ``longpole_analytics.top.top``.

A name is imported when it is first used, so that loading the roll-up does not load tables.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longpole_analytics.attribution import Attribution, Cause, attribute
    from longpole_analytics.critical_path import CriticalPath
    from longpole_analytics.finding import Finding, find
    from longpole_analytics.frames import by_trace, spans_from_table
    from longpole_analytics.stages import StageTime, TracePartition, partition
    from longpole_analytics.stats import interval, quantile
    from longpole_analytics.tree import PathSpan
    from longpole_analytics.whatif import drag, slack, what_if

__all__ = [
    "Attribution",
    "Cause",
    "CriticalPath",
    "Finding",
    "PathSpan",
    "StageTime",
    "TracePartition",
    "attribute",
    "by_trace",
    "drag",
    "find",
    "interval",
    "partition",
    "quantile",
    "slack",
    "spans_from_table",
    "what_if",
]

_FILES = {
    "Attribution": "attribution",
    "Cause": "attribution",
    "attribute": "attribution",
    "CriticalPath": "critical_path",
    "Finding": "finding",
    "find": "finding",
    "by_trace": "frames",
    "spans_from_table": "frames",
    "StageTime": "stages",
    "TracePartition": "stages",
    "partition": "stages",
    "interval": "stats",
    "quantile": "stats",
    "PathSpan": "tree",
    "drag": "whatif",
    "slack": "whatif",
    "what_if": "whatif",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
