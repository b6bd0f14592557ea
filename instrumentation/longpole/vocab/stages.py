"""The terms of the latency equation, the one stage vocabulary.

Used by code, columns, charts and reports alike: every nanosecond of a trace's wall time belongs
to exactly one of these.
"""

from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    """One term of the latency equation, in the order a request meets them."""

    ADMISSION = "admission"
    NETWORK = "network"
    QUEUE = "queue"
    COLD_START = "cold_start"
    TOKENIZE = "tokenize"
    PREFILL = "prefill"
    FIRST_DECODE = "first_decode"
    TTFT_OPAQUE = "ttft_opaque"
    LATER_DECODE = "later_decode"
    STREAM = "stream"
    TOOL = "tool"
    RETRIEVAL = "retrieval"
    VALIDATION = "validation"
    RETRY = "retry"
    HUMAN_WAIT = "human_wait"
    RENDER = "render"
    OTHER = "other"


STAGE_DOC: Final[dict[Stage, str]] = {
    Stage.ADMISSION: "waiting before the send: rate limiter, semaphore, gateway",
    Stage.NETWORK: "client's time to the first event that the engine does not account for",
    Stage.QUEUE: "arrived at the engine, not yet scheduled",
    Stage.COLD_START: "model load, compile, warm-up",
    Stage.TOKENIZE: "arrival to tokens ready",
    Stage.PREFILL: "scheduled to prompt complete",
    Stage.FIRST_DECODE: "prompt complete to first token out",
    Stage.TTFT_OPAQUE: "time to the first content that no engine span explains",
    Stage.LATER_DECODE: "first to last token",
    Stage.STREAM: "delivery after the last token, and client time above the engine's decode",
    Stage.TOOL: "tool calls",
    Stage.RETRIEVAL: "retrieval and rerank",
    Stage.VALIDATION: "validation and guardrails",
    Stage.RETRY: "failed attempts and the waits after them",
    Stage.HUMAN_WAIT: "waiting for a person",
    Stage.RENDER: "showing the answer on the page",
    Stage.OTHER: "own time of every other span",
}

ENGINE_TTFT_STAGES: Final = (
    Stage.ADMISSION,
    Stage.TOKENIZE,
    Stage.QUEUE,
    Stage.COLD_START,
    Stage.PREFILL,
    Stage.FIRST_DECODE,
)
"""Engine phases between arrival and first token, in order."""

MODEL_STAGES: Final = frozenset(
    (
        *ENGINE_TTFT_STAGES,
        Stage.NETWORK,
        Stage.TTFT_OPAQUE,
        Stage.LATER_DECODE,
        Stage.STREAM,
    )
)
"""What one model turn is made of."""

STAGE_COLOURS: Final[dict[Stage, str]] = {
    Stage.ADMISSION: "#9aa0a6",
    Stage.NETWORK: "#bab0ac",
    Stage.QUEUE: "#e15759",
    Stage.COLD_START: "#79706e",
    Stage.TOKENIZE: "#8cd17d",
    Stage.PREFILL: "#f28e2b",
    Stage.FIRST_DECODE: "#a0cbe8",
    Stage.TTFT_OPAQUE: "#f28e2b",
    Stage.LATER_DECODE: "#4e79a7",
    Stage.STREAM: "#86bcb6",
    Stage.TOOL: "#b07aa1",
    Stage.RETRIEVAL: "#59a14f",
    Stage.VALIDATION: "#499894",
    Stage.RETRY: "#d4a017",
    Stage.HUMAN_WAIT: "#d7b5a6",
    Stage.RENDER: "#fabfd2",
    Stage.OTHER: "#d4d4d4",
}
"""One colour per stage for dashboard, report and terminal; never the only cue
(``ttft_opaque`` is ``prefill``'s colour, hatched)."""
