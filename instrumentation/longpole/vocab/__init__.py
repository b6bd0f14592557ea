"""The vocabulary: attribute keys, stages and the span record. Imports the standard library only."""

from longpole.vocab import keys
from longpole.vocab.span import Col, Column, Kind, Span, Status, columns
from longpole.vocab.stages import (
    ENGINE_TTFT_STAGES,
    MODEL_STAGES,
    STAGE_COLOURS,
    STAGE_DOC,
    Stage,
)
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
