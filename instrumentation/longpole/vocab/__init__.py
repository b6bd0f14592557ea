"""The vocabulary: attribute keys, stages and the span record. Imports the standard library only.

The records are made when they are first asked for: an application that only sends spans has no
use for them, and a tenth of the time that ``import longpole`` takes would go into them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from longpole.vocab import keys
from longpole.vocab.stages import (
    ENGINE_TTFT_STAGES,
    MODEL_STAGES,
    STAGE_COLOURS,
    STAGE_DOC,
    Stage,
)

if TYPE_CHECKING:
    from longpole.vocab.span import Col, Column, Kind, Span, Status, columns
    from longpole.vocab.trace import Rollup, Trace, TraceStage

__all__ = [
    "ENGINE_TTFT_STAGES",
    "MODEL_STAGES",
    "STAGE_COLOURS",
    "STAGE_DOC",
    "Col",
    "Column",
    "Kind",
    "Rollup",
    "Span",
    "Stage",
    "Status",
    "Trace",
    "TraceStage",
    "columns",
    "keys",
]

_TRACE_RECORDS = ("Rollup", "Trace", "TraceStage")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "trace" if name in _TRACE_RECORDS else "span"
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
