"""Plans to tensors, tensors to logits: the model and the memory of the pages in one place."""

import copy
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from longpole_engine.attention.base import Attention, Segment
from longpole_engine.attention.exact import ExactAttention
from longpole_engine.attention.paged import PromptAttention, RowAttention
from longpole_engine.attention.whole import WholeAttention
from longpole_engine.config import EngineConfig, Numerics
from longpole_engine.kv.pool import PAGE_TOKENS, num_pages
from longpole_engine.kv.store import KvStore, bytes_per_token
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.llama import Llama
from longpole_engine.ops.linear import TILE_ROWS
from longpole_engine.ops.norm import RmsNorm

_BUFFER_TOKENS: Final = 65_536
"""Above so many gathered tokens a step's buffer is not kept."""


class Rows(NamedTuple):
    """Tokens of one sequence to compute: its pages, the first one's position, which rows count.

    ``num_logits`` of the last rows get logits.
    """

    pages: list[int]
    start: int
    tokens: list[int]
    num_logits: int


class Runner:
    """Runs pieces of prompts and decoding rows of one model.

    Args:
        checkpoint: sizes and weights.
        config: formats and limits; sequences are bounded by the model's context as well.
    """

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        self._config = config
        c = checkpoint.config
        max_tokens = min(config.max_model_tokens, c.context_tokens)
        page_bytes = PAGE_TOKENS * bytes_per_token(
            c.num_layers, c.num_kv_heads, c.head_dim, config.kv_format
        )
        self.num_cached_pages = config.prefix_cache_mb * 2**20 // page_bytes
        num_all = config.kv_pages
        if num_all == 0:
            num_all = config.max_num_seqs * num_pages(max_tokens)
            num_all += self.num_cached_pages if config.is_prefix_cached else 0
        self.max_tokens = min(max_tokens, num_all * PAGE_TOKENS)
        self.store = KvStore(c.num_layers, c.num_kv_heads, c.head_dim, num_all, config.kv_format)
        self._model = Llama(c, checkpoint.tensors, config.weights, self.max_tokens, config.numerics)
        self._is_exact = config.numerics is Numerics.INVARIANT
        self._buffer = torch.empty(0)
        self._token_numbers = 2 * c.num_kv_heads * c.head_dim
        self._norm = RmsNorm(checkpoint.tensors["norm"], c.rms_eps)

    def read_bytes(self, num_decode_rows: int, num_prompt_rows: int) -> int:
        """Bytes of weights that a step of so many rows reads at least, each format once."""
        return self._model.read_bytes(num_decode_rows, num_prompt_rows)

    def first(self, num_layers: int) -> "Runner":
        """The model's first layers alone, on the same memory."""
        cut = copy.copy(self)
        cut._model = self._model.first(num_layers)
        return cut

    def warm_up(self) -> None:
        """Run a prompt and a few decode steps, so that no request pays for first uses."""
        num = min(32, self.max_tokens - 2)
        pages = list(range(num_pages(num + 2)))
        self.prompt([Rows(pages, 0, [0] * num, 1)])
        for position in (num, num + 1):
            self.decode([Rows(pages, position, [0], 1)])

    @torch.inference_mode()
    def prompt(self, rows: Sequence[Rows]) -> Tensor:
        """Compute pieces of prompts.

        Returns:
            Logits of the rows that count, in order, ``[num, vocab_size]``; empty if none does.
        """
        torch.set_num_threads(self._config.num_threads)
        if self._is_exact:
            return self._exact(rows)
        return self._run(rows, self._model.prompt, PromptAttention(self.store, _segments(rows)))

    @torch.inference_mode()
    def decode(self, rows: Sequence[Rows]) -> Tensor:
        """Compute the newest tokens, and drafts after them; logits as :meth:`prompt`."""
        if self._is_exact:
            torch.set_num_threads(self._config.num_threads)  # one number: bits may depend on it
            return self._exact(rows)
        torch.set_num_threads(self._config.num_decode_threads)
        segments = _segments(rows)
        attention: Attention
        if all(segment.num_rows == 1 for segment in segments):
            attention = RowAttention(self.store, segments, self._room(segments))
        else:
            attention = PromptAttention(self.store, segments)
        return self._run(rows, self._model.decode, attention)

    @torch.inference_mode()
    def embed(self, tokens: Sequence[int]) -> list[float]:
        """The mean of a text's last hidden states, of length 1."""
        torch.set_num_threads(self._config.num_threads)
        attention = WholeAttention()
        size = TILE_ROWS if self._is_exact else len(tokens)
        total = torch.zeros(())
        for start in range(0, len(tokens), size):
            part = torch.tensor(tokens[start : start + size])
            positions = torch.arange(start, start + len(part))
            total = total + self._norm(self._model.prompt(part, positions, attention)).sum(dim=0)
        found: list[float] = functional.normalize(total, dim=0).tolist()
        return found

    def _run(
        self,
        rows: Sequence[Rows],
        forward: Callable[[Tensor, Tensor, Attention], Tensor],
        attention: Attention,
    ) -> Tensor:
        tokens: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        for piece in rows:
            tokens += piece.tokens
            positions += range(piece.start, piece.start + len(piece.tokens))
            wanted += range(len(tokens) - piece.num_logits, len(tokens))
        hidden = forward(torch.tensor(tokens), torch.tensor(positions), attention)
        if len(wanted) < len(tokens):
            hidden = hidden[wanted]
        return self._model.logits(hidden) if wanted else hidden[:0]

    def _exact(self, rows: Sequence[Rows]) -> Tensor:
        """In tiles of at most 16 rows, each through the whole model."""
        found = []
        tile: list[Rows] = []
        for piece in rows:
            start = 0
            while start < len(piece.tokens):
                room = TILE_ROWS - sum(len(part.tokens) for part in tile)
                tokens = piece.tokens[start : start + room]
                left = len(piece.tokens) - start - len(tokens)
                num_logits = max(0, min(len(tokens), piece.num_logits - left))
                tile.append(Rows(piece.pages, piece.start + start, tokens, num_logits))
                start += len(tokens)
                if len(tokens) == room:
                    found.append(self._tile(tile))
                    tile = []
        if tile:
            found.append(self._tile(tile))
        return torch.cat([logits for logits in found if len(logits)] or found[:1])

    def _tile(self, tile: list[Rows]) -> Tensor:
        attention = ExactAttention(self.store, _segments(tile))
        return self._run(tile, self._model.decode, attention)

    def _room(self, segments: list[Segment]) -> Tensor:
        """The gather buffer, grown to what this step needs."""
        longest = max(num_pages(segment.end) for segment in segments) * PAGE_TOKENS
        needed = longest * len(segments) * self._token_numbers
        if needed > self._buffer.numel():
            room = torch.empty(needed + needed // 4)
            if longest * len(segments) > _BUFFER_TOKENS:
                return room
            self._buffer = room
        return self._buffer


def _segments(rows: Sequence[Rows]) -> list[Segment]:
    return [Segment(piece.pages, piece.start, len(piece.tokens)) for piece in rows]
