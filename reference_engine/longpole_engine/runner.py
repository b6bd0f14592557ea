"""Plans to tensors, tensors to logits: the model, the slots and the prefix cache in one place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from longpole_engine.attention.contiguous import DecodeAttention, PrefillAttention
from longpole_engine.config import EngineConfig
from longpole_engine.kv.prefix import PrefixCache
from longpole_engine.kv.slots import Slots
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.llama import Llama


class Runner:
    """Runs prompts and decode steps of one model.

    Args:
        checkpoint: sizes and weights.
        config: formats and limits; sequences are bounded by the model's context as well.
    """

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        self._config = config
        self.max_tokens = min(config.max_model_tokens, checkpoint.config.context_tokens)
        self._model = Llama(checkpoint.config, checkpoint.tensors, config.weights, self.max_tokens)
        self._slots = Slots(checkpoint.config, config.max_num_seqs, self.max_tokens)
        self._prefix: PrefixCache | None = None
        if config.is_prefix_cached:
            self._prefix = PrefixCache(self._slots, config.prefix_cache_mb * 2**20)

    def warm_up(self) -> None:
        """Run a prompt and a few decode steps, so that no request pays for first uses."""
        prompt = [0] * min(32, self.max_tokens - 2)
        self._run_prompt(prompt, 0, 0)
        for position in (len(prompt), len(prompt) + 1):
            self.decode([0], [position])

    def prefill(self, prompt: Sequence[int], slot: int) -> tuple[Tensor, int]:
        """Run a prompt into a slot, as far as the prefix cache does not hold it.

        Returns:
            Logits after the last token, ``[1, vocab_size]``, and the number of cached tokens.
        """
        num_cached = self._prefix.fetch(prompt, slot) if self._prefix else 0
        return self._run_prompt(prompt, slot, num_cached), num_cached

    def keep_prefix(self, prompt: Sequence[int], slot: int) -> None:
        """Offer a prompt that has just run to the prefix cache."""
        if self._prefix:
            self._prefix.keep(prompt, slot)

    @torch.inference_mode()
    def decode(self, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
        """One step for the sequences in the first slots, in order.

        Args:
            tokens: the newest token of each.
            positions: where it stands.

        Returns:
            Logits, ``[len(tokens), vocab_size]``.
        """
        torch.set_num_threads(self._config.num_decode_threads)
        where = torch.tensor(positions)
        attention = DecodeAttention(self._slots.data, where)
        return self._model.decode(torch.tensor(tokens), where, attention)

    def close_gap(self, slot: int, last: int, num_tokens: int) -> None:
        """A sequence ended: move the one in the last used slot into its place."""
        if slot != last:
            self._slots.move(last, slot, num_tokens)

    @torch.inference_mode()
    def _run_prompt(self, prompt: Sequence[int], slot: int, start: int) -> Tensor:
        torch.set_num_threads(self._config.num_threads)
        num_new = len(prompt) - start
        attention = PrefillAttention(self._slots.data, slot, start, num_new)
        positions = torch.arange(start, len(prompt))
        return self._model.prefill(torch.tensor(prompt[start:]), positions, attention)
