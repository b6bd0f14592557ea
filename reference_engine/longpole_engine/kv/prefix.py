"""The prefix cache: prompts that begin alike share their pages.

A sequence's tokens are cut into pages of 16. A full page is known by the hash of its parent's
hash and its own tokens, so equal hashes along the chain mean equal prefixes; tokens and parent
are compared as well, so a collision is a miss and never a wrong answer. The first page's parent
is the tenant's salt: tenants share nothing. No tensors here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from longpole_engine.kv.pool import PAGE_TOKENS


class _Block(NamedTuple):
    uid: int
    parent: int | str
    tokens: tuple[int, ...]
    page: int


class Chain(NamedTuple):
    """How far a sequence's pages are known: number of pages, hash and id of the last one."""

    num_pages: int
    key: int
    parent: int | str


def root(salt: str) -> Chain:
    """The chain of no pages, for one tenant."""
    return Chain(0, chain_hash(0, (salt,)), salt)


def chain_hash(parent: int, tokens: tuple[object, ...]) -> int:
    """Hash of a page in its chain."""
    return hash((parent, tokens))


def num_cacheable(num_tokens: int) -> int:
    """Pages that may come from the cache: whole ones that leave at least the last token."""
    return max(0, num_tokens - 1) // PAGE_TOKENS


class PrefixIndex:
    """Which pages hold which prefix."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._keys: dict[int, int] = {}
        self._next_uid = 1

    def __len__(self) -> int:
        return len(self._blocks)

    def is_known(self, page: int) -> bool:
        """Whether the page's content can be found."""
        return page in self._keys

    def forget(self, page: int) -> None:
        """The page will hold something else."""
        del self._blocks[self._keys.pop(page)]

    def match(self, tokens: Sequence[int], chain: Chain) -> tuple[list[int], Chain]:
        """Pages of the longest known prefix that leaves at least the last token.

        Args:
            tokens: the sequence's.
            chain: where to begin: :func:`root` of its tenant.
        """
        pages: list[int] = []
        for number in range(num_cacheable(len(tokens))):
            content = _page(tokens, number)
            key = chain_hash(chain.key, content)
            block = self._blocks.get(key)
            if block is None or block.tokens != content or block.parent != chain.parent:
                break
            pages.append(block.page)
            chain = Chain(number + 1, key, block.uid)
        return pages, chain

    def extend(self, tokens: Sequence[int], pages: Sequence[int], chain: Chain) -> Chain:
        """Make a sequence's full pages known, from the end of its chain on.

        A page whose content is known already under another number stays private.

        Args:
            tokens: those whose keys and values are in the pages.
            pages: the sequence's table.
            chain: how far it was known; returned as far as it is now.
        """
        for number in range(chain.num_pages, len(tokens) // PAGE_TOKENS):
            content = _page(tokens, number)
            key = chain_hash(chain.key, content)
            block = self._blocks.get(key)
            if block is None:
                if pages[number] in self._keys:
                    break
                block = _Block(self._next_uid, chain.parent, content, pages[number])
                self._next_uid += 1
                self._blocks[key] = block
                self._keys[block.page] = key
            elif block.tokens != content or block.parent != chain.parent:
                break  # another page has this hash: leave it there
            chain = Chain(number + 1, key, block.uid)
        return chain

    def pages(self) -> set[int]:
        """All known pages."""
        return set(self._keys)


def _page(tokens: Sequence[int], number: int) -> tuple[int, ...]:
    return tuple(tokens[number * PAGE_TOKENS : (number + 1) * PAGE_TOKENS])
