"""Latency shapes: what kind of slowness a slice or a trace has, with evidence and the next check.

A shape is named by a rule, one file each here (constant ``RULE``); ``base`` holds what rules get
and return, files that begin with an underscore the statistics. Names are imported when first
used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longpole_analytics.shapes._decide import shapes_of
    from longpole_analytics.shapes._single import Baseline, Usual, shape_of_trace
    from longpole_analytics.shapes.base import Evidence, Shape, ShapeRules

__all__ = [
    "Baseline",
    "Evidence",
    "Shape",
    "ShapeRules",
    "Usual",
    "shape_of_trace",
    "shapes_of",
]

_FILES = {
    "Baseline": "_single",
    "Usual": "_single",
    "shape_of_trace": "_single",
    "Evidence": "base",
    "Shape": "base",
    "ShapeRules": "base",
    "shapes_of": "_decide",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
