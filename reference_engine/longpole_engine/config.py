"""What an engine is built with. Every choice is an enum or a number, checked once, here."""

from dataclasses import dataclass
from enum import StrEnum

from longpole.errors import UsageError

MAX_NUM_SEQS = 64
"""Above it, one step's decode batch gains nothing on a CPU."""


class Weights(StrEnum):
    """Format of the weights while decoding; prompts run in fp32 (``fast``)."""

    INT4 = "int4"
    INT8 = "int8"
    BF16 = "bf16"
    FP32 = "fp32"


class Numerics(StrEnum):
    """How exact "the same answer" is.

    ``fast``: batched kernels; near-ties between two tokens may fall either way. ``invariant``:
    every row is computed in one way, so an answer's bits do not depend on batching, chunking,
    paging, caching or pre-emption.
    """

    FAST = "fast"
    INVARIANT = "invariant"


class KvFormat(StrEnum):
    """Format of keys and values in the pool; int8 buys room, not speed."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"


class Policy(StrEnum):
    """Whose turn it is; see :mod:`longpole_engine.scheduler.policies`."""

    FCFS = "fcfs"
    PRIORITY = "priority"
    SHORTEST = "shortest"
    SLO = "slo"


class Batching(StrEnum):
    """``static``: a batch starts together and the next waits for its slowest."""

    CONTINUOUS = "continuous"
    STATIC = "static"


class Preemption(StrEnum):
    """What becomes of a sequence's pages when it must wait: computed again, or kept aside."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


class Eviction(StrEnum):
    """Which cached pages go first: least recently used, or one-off prompts before sessions."""

    LRU = "lru"
    SESSION = "session"


class Speculation(StrEnum):
    """Where drafts of the next tokens come from.

    ``ngram``: the sequence itself; ``self``: the model's own first layers; ``draft``: a smaller
    model with the same tokens.
    """

    OFF = "off"
    NGRAM = "ngram"
    SELF = "self"
    DRAFT = "draft"


@dataclass(frozen=True)
class EngineConfig:
    """Sizes and policies of one engine.

    ``max_step_tokens`` is the budget of one step: decoding rows take one each, pieces of prompts
    the rest, and far into a long prompt a token counts for more; with ``is_chunked`` off a prompt
    runs whole whatever its length. ``kv_pages`` 0 means
    room for every sequence at full length and for the prefix cache. ``deadline_s`` 0 means none.

    At most ``num_drafts`` tokens are drafted a step, fewer where they do not pay, unless
    ``is_draft_dynamic`` is off. ``exit_layers`` are those of self-speculation, 0 four fifths of
    all; ``draft_model`` is the smaller model's name. Requests of ``regret_routes`` may lose
    ``regret_budget`` nats of log-probability each to at most ``regret_exceptions`` drafts that are
    near misses; all others, and all at 0, are exact.

    Prompts run on ``num_threads``. Decoding has its own number, by default 1: its kernels are
    short, and on cores shared with other work two threads mostly wait for each other.

    Raises:
        UsageError: a value out of range.
    """

    weights: Weights = Weights.INT4
    numerics: Numerics = Numerics.FAST
    kv_format: KvFormat = KvFormat.FP32
    policy: Policy = Policy.FCFS
    batching: Batching = Batching.CONTINUOUS
    preemption: Preemption = Preemption.RECOMPUTE
    eviction: Eviction = Eviction.SESSION
    max_num_seqs: int = 8
    max_model_tokens: int = 4096
    max_step_tokens: int = 256
    is_chunked: bool = True
    max_queue: int = 64
    deadline_s: int = 0
    kv_pages: int = 0
    is_prefix_cached: bool = True
    prefix_cache_mb: int = 512
    num_threads: int = 2
    num_decode_threads: int = 1
    speculation: Speculation = Speculation.OFF
    num_drafts: int = 3
    is_draft_dynamic: bool = True
    exit_layers: int = 0
    draft_model: str = ""
    regret_budget: float = 0.0
    regret_exceptions: int = 8
    regret_routes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, low, high in (
            ("max_num_seqs", 1, MAX_NUM_SEQS),
            ("max_model_tokens", 2, 1 << 20),
            ("max_step_tokens", 1, 1 << 20),
            ("max_queue", 1, 100_000),
            ("deadline_s", 0, 86_400),
            ("kv_pages", 0, 1 << 24),
            ("prefix_cache_mb", 1, 1 << 20),
            ("num_threads", 1, 1024),
            ("num_decode_threads", 1, 1024),
            ("num_drafts", 1, 16),
            ("exit_layers", 0, 1024),
            ("regret_budget", 0, 1000),
            ("regret_exceptions", 0, 1 << 20),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"{name} is {value}: choose {low} to {high}")
        if self.speculation is Speculation.DRAFT and not self.draft_model:
            raise UsageError("speculation 'draft' needs a draft_model")
