from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longpole_engine.kv import prefix
from longpole_engine.kv.prefix import BLOCK_TOKENS, PrefixCache, PrefixIndex, num_blocks
from longpole_engine.kv.slots import Slots
from longpole_engine.models.llama import LlamaConfig

CONFIG = LlamaConfig(2, 8, 2, 1, 4, 16, 32, 512, 1e4, 1e-5)
BLOCK_BYTES = 4 * 2 * 2 * 1 * BLOCK_TOKENS * 4

# Prompts as short words, each letter a block's worth of one token: prefixes collide often.
words = st.lists(st.text("ab", max_size=5), max_size=25)


def prompt(word: str) -> tuple[int, ...]:
    return (*(ord(letter) for letter in word for _ in range(BLOCK_TOKENS)), 0)


def test_the_last_token_always_runs() -> None:
    assert [num_blocks(n) for n in (0, 1, 16, 17, 32, 33)] == [0, 0, 0, 1, 1, 2]


@given(words, st.integers(0, 6))
def test_what_is_found_was_stored_for_that_very_prefix(names: list[str], capacity: int) -> None:
    index = PrefixIndex(capacity)
    content: dict[int, str] = {}
    for word in names:
        for number, place in index.insert(prompt(word)):
            content[place] = word[: number + 1]
        assert len(index) <= capacity
        found = index.match(prompt(word))
        assert [content[place] for place in found] == [word[: i + 1] for i in range(len(found))]
        assert len(found) >= min(len(word), capacity)


@given(words)
def test_with_room_for_all_every_stored_prefix_is_found(names: list[str]) -> None:
    index = PrefixIndex(1000)
    seen: set[str] = set()
    for word in names:
        longest = max((n for n in range(len(word) + 1) if word[:n] in seen), default=0)
        assert len(index.match(prompt(word))) == longest
        index.insert(prompt(word))
        seen.update(word[:n] for n in range(1, len(word) + 1))


def test_least_recently_used_go_first_and_a_chain_goes_from_its_tail() -> None:
    index = PrefixIndex(4)
    index.insert(prompt("aa"))
    index.insert(prompt("bb"))
    index.match(prompt("aa"))
    index.insert(prompt("c"))
    assert [len(index.match(prompt(word))) for word in ("aa", "bb", "c")] == [2, 1, 1]


def test_a_forged_hash_collision_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "chain_hash", lambda parent, tokens: 7)
    index = PrefixIndex(8)
    assert len(index.insert(prompt("aa"))) == 1
    assert len(index.match(prompt("a"))) == 1
    assert index.match(prompt("b")) == []
    assert index.insert(prompt("b")) == []


def test_the_same_block_after_another_parent_is_a_miss() -> None:
    index = PrefixIndex(8)
    index.insert(prompt("ab"))
    index.insert(prompt("b"))
    assert len(index.match(prompt("bb"))) == 1


def filled(slots: Slots, slot: int, tokens: Sequence[int]) -> None:
    for position, token in enumerate(tokens):
        slots.data[:, slot, :, :, position] = 1000.0 * token + position


def test_a_fetched_prefix_equals_what_was_kept() -> None:
    slots = Slots(CONFIG, num_slots=2, max_tokens=128)
    cache = PrefixCache(slots, max_bytes=6 * BLOCK_BYTES)
    tokens = prompt("abc")
    filled(slots, 0, tokens)
    cache.keep(tokens, 0)
    assert cache.fetch(prompt("abx"), 1) == 2 * BLOCK_TOKENS
    end = 2 * BLOCK_TOKENS
    assert torch.equal(slots.data[:, 1, :, :, :end], slots.data[:, 0, :, :, :end])
    assert not slots.data[:, 1, :, :, end:].any()


def test_a_cache_without_room_holds_nothing() -> None:
    slots = Slots(CONFIG, num_slots=1, max_tokens=64)
    cache = PrefixCache(slots, max_bytes=BLOCK_BYTES - 1)
    cache.keep(prompt("ab"), 0)
    assert cache.fetch(prompt("ab"), 0) == 0
