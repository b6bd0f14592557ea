"""What an engine is built with. Every choice is an enum or a number, checked once, here."""

from dataclasses import dataclass
from enum import StrEnum

from longpole.errors import UsageError

MAX_NUM_SEQS = 64
"""Above it, one step's decode batch gains nothing on a CPU."""


class Weights(StrEnum):
    """Format of the weights while decoding; prompts always run in fp32."""

    INT4 = "int4"
    INT8 = "int8"
    BF16 = "bf16"
    FP32 = "fp32"


class Numerics(StrEnum):
    """``fast``: batched kernels; near-ties between two tokens may fall either way."""

    FAST = "fast"
    INVARIANT = "invariant"


@dataclass(frozen=True)
class EngineConfig:
    """Sizes and policies of one engine.

    Prompts run on ``num_threads``. Decoding has its own number, by default 1: its kernels are
    short, and on cores shared with other work two threads mostly wait for each other.

    Raises:
        UsageError: a value out of range, or a policy this version lacks.
    """

    weights: Weights = Weights.INT4
    numerics: Numerics = Numerics.FAST
    max_num_seqs: int = 8
    max_model_tokens: int = 4096
    max_queue: int = 64
    is_prefix_cached: bool = True
    prefix_cache_mb: int = 512
    num_threads: int = 2
    num_decode_threads: int = 1

    def __post_init__(self) -> None:
        if self.numerics is Numerics.INVARIANT:
            raise UsageError("numerics 'invariant' is not in this version: use 'fast'")
        for name, low, high in (
            ("max_num_seqs", 1, MAX_NUM_SEQS),
            ("max_model_tokens", 2, 1 << 20),
            ("max_queue", 1, 100_000),
            ("prefix_cache_mb", 1, 1 << 20),
            ("num_threads", 1, 1024),
            ("num_decode_threads", 1, 1024),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"{name} is {value}: choose {low} to {high}")
