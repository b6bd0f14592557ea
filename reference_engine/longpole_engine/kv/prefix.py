"""The prefix cache: prompts that begin alike share their keys and values.

A prompt is cut into blocks of 16 tokens. A block is known by the hash of its parent's hash and
its own tokens, so equal hashes along the chain mean equal prefixes; tokens and parent are
compared as well, so a collision is a miss and never a wrong answer. Only whole blocks of prompts
are kept, never the last token's: at least one token always runs, since its logits are needed.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from longpole_engine.kv.slots import Slots, lazy_zeros

BLOCK_TOKENS = 16


@dataclass(frozen=True)
class _Block:
    uid: int
    parent: int
    tokens: tuple[int, ...]
    place: int


def chain_hash(parent: int, tokens: tuple[int, ...]) -> int:
    """Hash of a block in its chain."""
    return hash((parent, tokens))


class PrefixIndex:
    """Which blocks are stored where; least recently used go first. No tensors here.

    Args:
        capacity: places for blocks.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._free = list(range(capacity - 1, -1, -1))
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._next_uid = 1

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, prompt: Sequence[int]) -> list[int]:
        """Places of the longest stored chain of blocks that the prompt begins with."""
        chain = self._chain(prompt)
        self._touch(chain)
        return [self._blocks[key].place for key in chain]

    def insert(self, prompt: Sequence[int]) -> list[tuple[int, int]]:
        """Make room for the prompt's blocks that are not stored yet.

        Returns:
            Pairs of block number within the prompt and place to fill; fewer than missing when
            the cache cannot hold the whole chain.
        """
        chain = self._chain(prompt)
        self._touch(chain)
        kept = set(chain)
        new: list[tuple[int, int]] = []
        key, parent = (chain[-1], self._blocks[chain[-1]].uid) if chain else (0, 0)
        for number in range(len(chain), num_blocks(len(prompt))):
            tokens = _block(prompt, number)
            key = chain_hash(key, tokens)
            if key in self._blocks:  # another block has this hash: leave it there
                break
            place = self._place(kept)
            if place is None:
                break
            self._blocks[key] = _Block(self._next_uid, parent, tokens, place)
            parent = self._next_uid
            self._next_uid += 1
            kept.add(key)
            chain.append(key)
            new.append((number, place))
        self._touch(chain)
        return new

    def _chain(self, prompt: Sequence[int]) -> list[int]:
        chain: list[int] = []
        key = parent = 0
        for number in range(num_blocks(len(prompt))):
            tokens = _block(prompt, number)
            key = chain_hash(key, tokens)
            block = self._blocks.get(key)
            if block is None or block.tokens != tokens or block.parent != parent:
                break
            chain.append(key)
            parent = block.uid
        return chain

    def _touch(self, chain: Sequence[int]) -> None:
        """Mark a chain used, its head last: so a chain is dropped from its tail."""
        for key in reversed(chain):
            self._blocks.move_to_end(key)

    def _place(self, kept: set[int]) -> int | None:
        if self._free:
            return self._free.pop()
        oldest = next(iter(self._blocks), None)
        if oldest is None or oldest in kept:
            return None
        return self._blocks.pop(oldest).place


class PrefixCache:
    """The index with its storage: blocks are copied out of and into the slots.

    Args:
        slots: where sequences run; gives the shape of a block.
        max_bytes: bound of the storage.
    """

    def __init__(self, slots: Slots, max_bytes: int) -> None:
        layers, _, two, heads, _, dim = slots.data.shape
        shape = (layers, two, heads, BLOCK_TOKENS, dim)
        num_places = max_bytes // (4 * layers * two * heads * BLOCK_TOKENS * dim)
        self._slots = slots
        self._store: Tensor = lazy_zeros((num_places, *shape))
        self.index = PrefixIndex(num_places)

    def fetch(self, prompt: Sequence[int], slot: int) -> int:
        """Copy the longest stored prefix into a slot; returns its number of tokens."""
        places = self.index.match(prompt)
        if not places:
            return 0
        blocks = self._store[places]  # [blocks, layers, 2, heads, BLOCK_TOKENS, dim]
        num_tokens = len(places) * BLOCK_TOKENS
        run = blocks.permute(1, 2, 3, 0, 4, 5).flatten(3, 4)
        self._slots.data[:, slot, :, :, :num_tokens] = run
        return num_tokens

    def keep(self, prompt: Sequence[int], slot: int) -> None:
        """Store the blocks of a prompt that has just run in a slot."""
        for number, place in self.index.insert(prompt):
            start = number * BLOCK_TOKENS
            block = self._slots.data[:, slot, :, :, start : start + BLOCK_TOKENS]
            self._store[place] = block


def num_blocks(num_tokens: int) -> int:
    """Blocks of a prompt that may be cached: whole ones that leave at least its last token."""
    return max(0, num_tokens - 1) // BLOCK_TOKENS


def _block(prompt: Sequence[int], number: int) -> tuple[int, ...]:
    return tuple(prompt[number * BLOCK_TOKENS : (number + 1) * BLOCK_TOKENS])
