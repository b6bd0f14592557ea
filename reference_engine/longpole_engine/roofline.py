"""What a model must hold and read, and the least time that takes: floors, never predictions.

Roofline: Williams, Waterman and Patterson 2009. Decoding a few rows is bound by the bytes read,
prompts by the arithmetic. A floor leaves out all but those, so a measured time is never below it.
"""

from typing import Final, NamedTuple

from longpole.errors import UsageError
from longpole_engine.config import KvFormat, Weights
from longpole_engine.kv.pool import PAGE_TOKENS, num_pages
from longpole_engine.kv.store import bytes_per_token
from longpole_engine.models.llama import LlamaConfig
from longpole_engine.ops.quant import INT4_GROUP

_INT8_SCALE_BYTES: Final = 2
_INT4_GROUP_BYTES: Final = 4
"""Scale and offset of a group, bf16 each."""


class Machine(NamedTuple):
    """What the hardware can do at best: bytes read and multiply-adds, both a second."""

    read_bytes_s: float
    flops: float


class Floors(NamedTuple):
    """Bytes and least times; ``None`` where the machine is not given."""

    num_params: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    decode_bytes: int
    decode_floor_s: float | None
    prefill_flops: int
    prefill_floor_s: float | None


def num_params(config: LlamaConfig, *, is_tied: bool = True) -> int:
    """Parameters of the model."""
    matrices = sum(rows * columns for rows, columns in matrix_shapes(config))
    vectors = (2 * config.num_layers + 1) * config.hidden_size
    embedding = config.vocab_size * config.hidden_size
    return matrices + vectors + (0 if is_tied else embedding)


def matrix_shapes(config: LlamaConfig) -> list[tuple[int, int]]:
    """Rows and columns of every matrix that a token runs through, the head last."""
    hidden, heads = config.hidden_size, config.num_heads * config.head_dim
    layer = [
        (heads + 2 * config.num_kv_heads * config.head_dim, hidden),
        (hidden, heads),
        (2 * config.ffn_size, hidden),
        (hidden, config.ffn_size),
    ]
    return layer * config.num_layers + [(config.vocab_size, hidden)]


def matrix_bytes(rows: int, columns: int, weights: Weights) -> int:
    """Bytes of one matrix in a format, its scales included."""
    numbers = rows * columns
    match weights:
        case Weights.FP32:
            return 4 * numbers
        case Weights.BF16:
            return 2 * numbers
        case Weights.INT8:
            return numbers + _INT8_SCALE_BYTES * rows
        case Weights.INT4:
            return numbers // 2 + _INT4_GROUP_BYTES * (numbers // INT4_GROUP)


def weight_bytes(config: LlamaConfig, weights: Weights) -> int:
    """Bytes that one decoding step reads of the weights: all layers and the head.

    The head of an int4 model is int8; the norms, which stay in the processor's cache, are left out.
    """
    *layers, head = matrix_shapes(config)
    head_format = Weights.INT8 if weights is Weights.INT4 else weights
    in_layers = sum(matrix_bytes(*shape, weights) for shape in layers)
    return in_layers + matrix_bytes(*head, head_format)


def kv_bytes(config: LlamaConfig, format: KvFormat, num_tokens: int, num_seqs: int = 1) -> int:
    """Bytes of the pages that so many sequences of so many tokens hold; by key heads, not heads."""
    per_token = bytes_per_token(config.num_layers, config.num_kv_heads, config.head_dim, format)
    return num_seqs * num_pages(num_tokens) * PAGE_TOKENS * per_token


def floors(
    config: LlamaConfig,
    weights: Weights,
    kv_format: KvFormat,
    num_tokens: int,
    num_seqs: int = 1,
    machine: Machine | None = None,
    *,
    is_tied: bool = True,
) -> Floors:
    """All figures for sequences of one length, decoding together.

    Args:
        config: the model's sizes.
        weights: format while decoding.
        kv_format: of keys and values.
        num_tokens: of each sequence.
        num_seqs: that decode together.
        machine: for times.
        is_tied: the embedding is also the head.

    Raises:
        UsageError: a number below 1.
    """
    if num_tokens < 1 or num_seqs < 1:
        raise UsageError(f"{num_seqs} sequences of {num_tokens} tokens: both are at least 1")
    per_token = bytes_per_token(config.num_layers, config.num_kv_heads, config.head_dim, kv_format)
    read = weight_bytes(config, weights) + num_seqs * num_tokens * per_token
    # A prompt's rows run through the layers and only the last through the head; attention does
    # two products of a row with every token before it.
    *layers, head = matrix_shapes(config)
    products = num_tokens * sum(rows * columns for rows, columns in layers) + head[0] * head[1]
    pairs = num_tokens * (num_tokens + 1) // 2
    products += 2 * pairs * config.num_layers * config.num_heads * config.head_dim
    flops = 2 * num_seqs * products
    return Floors(
        num_params(config, is_tied=is_tied),
        weight_bytes(config, weights),
        per_token,
        kv_bytes(config, kv_format, num_tokens, num_seqs),
        read,
        read / machine.read_bytes_s if machine else None,
        flops,
        flops / machine.flops if machine else None,
    )


def measure_machine(num_threads: int) -> Machine:
    """What this machine's processors do at best, in about two seconds.

    Reading: a quarter of a gibibyte, which no cache holds. Arithmetic: a product of two matrices
    in the faster of fp32 and bf16.
    """
    import time
    from collections.abc import Callable

    import torch

    def best_s(job: Callable[[], object]) -> float:
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            job()
            times.append(time.perf_counter() - begun)
        return min(times)

    torch.set_num_threads(num_threads)
    memory = torch.ones(64 * 2**20)
    size = 1024
    rates = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(size, size, dtype=dtype)
        rates.append(2 * size**3 / best_s(lambda matrix=matrix: matrix @ matrix))  # type: ignore[misc]
    return Machine(memory.nbytes / best_s(memory.sum), max(rates))
