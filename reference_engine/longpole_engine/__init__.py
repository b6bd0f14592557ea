"""The reference engine: a real model behind an OpenAI-compatible API, every phase a span.

Here stand the light words of its interface. The engine itself is
``longpole_engine.engine.Engine``, a model comes from ``longpole_engine.models.loader.load``;
both bring torch.
"""

from longpole_engine import _standalone

_standalone.prepare()  # before anything of longpole is imported

from longpole_engine.config import EngineConfig, Numerics, Weights  # noqa: E402
from longpole_engine.types import (  # noqa: E402
    Chunk,
    FinishReason,
    QueueFull,
    Request,
    SamplingParams,
)

__all__ = [
    "Chunk",
    "EngineConfig",
    "FinishReason",
    "Numerics",
    "QueueFull",
    "Request",
    "SamplingParams",
    "Weights",
]
