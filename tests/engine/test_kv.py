"""Page tables against a memory that remembers what was written where."""

import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from longpole_engine.kv import prefix
from longpole_engine.kv.manager import KvManager, NoMover
from longpole_engine.kv.pool import PAGE_TOKENS, IdlePages, NoPages, num_pages
from longpole_engine.kv.prefix import num_cacheable

SIZE = 12


class Memory:
    """Pages whose slots hold the whole prefix up to their token: what keys and values depend on."""

    def __init__(self, size: int) -> None:
        self.slots: list[object] = [None] * (size * PAGE_TOKENS)

    def page(self, number: int) -> slice:
        return slice(number * PAGE_TOKENS, (number + 1) * PAGE_TOKENS)

    def copy(self, source: int, target: int) -> None:
        self.slots[self.page(target)] = self.slots[self.page(source)]

    def save(self, pages: Sequence[int]) -> object:
        return [self.slots[self.page(page)] for page in pages]

    def load(self, saved: object, pages: Sequence[int]) -> None:
        assert isinstance(saved, list)
        for page, content in zip(pages, saved, strict=True):
            self.slots[self.page(page)] = content


class Tables(RuleBasedStateMachine):
    """Sequences come, grow, fork, shrink, are swapped and leave; nothing is ever lost or mixed."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory(SIZE)
        self.kv = KvManager(SIZE, self.memory, num_cached=6)
        self.tokens: dict[str, list[int]] = {}
        self.salts: dict[str, str] = {}
        self.saved: dict[str, object] = {}
        self.number = 0

    def write(self, name: str, start: int) -> None:
        pages, tokens = self.kv.pages(name), self.tokens[name]
        for at in range(start, len(tokens)):
            slot = pages[at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS
            self.memory.slots[slot] = (self.salts[name], tuple(tokens[: at + 1]))
        self.kv.commit(name, tokens, len(tokens))

    def extend(self, name: str, new: list[int]) -> None:
        start = len(self.tokens[name])
        try:
            self.kv.grow(name, start, start + len(new))
        except NoPages:
            assert self.kv.pool.num_available == 0
            return
        self.tokens[name] += new
        self.write(name, start)

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.tokens)))

    @rule(word=st.text("ab", max_size=3), tail=st.integers(1, 20), salt=st.sampled_from("xy"))
    def begin(self, word: str, tail: int, salt: str) -> None:
        name, self.number = str(self.number), self.number + 1
        prompt = [ord(letter) for letter in word for _ in range(PAGE_TOKENS)] + [0] * tail
        hit = self.kv.lookup(prompt, salt)
        session = word or None
        num_held = self.kv.open(name, prompt, salt=salt, session=session, max_tokens=64)
        assert num_held == hit.num_tokens
        self.tokens[name], self.salts[name] = prompt[:num_held], salt
        self.extend(name, prompt[num_held:])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), new=st.lists(st.integers(0, 1), min_size=1, max_size=40))
    def append(self, data: st.DataObject, new: list[int]) -> None:
        self.extend(self.pick(data), new)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        name, child, self.number = self.pick(data), str(self.number), self.number + 1
        num_before = self.kv.pool.num_available
        self.kv.fork(name, child)
        assert self.kv.pool.num_available == num_before
        self.tokens[child], self.salts[child] = list(self.tokens[name]), self.salts[name]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), num_lost=st.integers(1, 20))
    def refuse_drafts(self, data: st.DataObject, num_lost: int) -> None:
        """Room for drafts is taken and given back; no known token is lost."""
        name = self.pick(data)
        num = len(self.tokens[name])
        with contextlib.suppress(NoPages):
            self.kv.grow(name, num, num + num_lost)
        self.kv.trim(name, num)
        assert len(self.kv.pages(name)) == num_pages(num)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        name = self.pick(data)
        self.kv.trim(name, len(self.tokens[name]))
        self.saved[name] = (self.kv.save(name), self.tokens.pop(name))

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def swap_in(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.saved)))
        saved, tokens = self.saved[name]  # type: ignore[misc]
        if num_pages(len(tokens)) <= self.kv.pool.num_available:
            self.kv.load(name, saved)
            self.tokens[name] = tokens
            del self.saved[name]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = self.pick(data)
        self.kv.close(name)
        del self.tokens[name]

    @invariant()
    def nothing_is_lost_or_mixed(self) -> None:
        self.kv.check()
        for name, tokens in self.tokens.items():
            pages = self.kv.pages(name)
            for at in range(len(tokens)):
                slot = pages[at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS
                assert self.memory.slots[slot] == (self.salts[name], tuple(tokens[: at + 1]))


Tables.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestTables = Tables.TestCase


def prompt(word: str) -> list[int]:
    """Each letter a page's worth of one token, and one token more."""
    return [*(ord(letter) for letter in word for _ in range(PAGE_TOKENS)), 0]


def ran(kv: KvManager, word: str, **options: str) -> int:
    """A prompt comes, runs and leaves; returns the tokens it found."""
    tokens = prompt(word)
    num_held = kv.open("one", tokens, **options)  # type: ignore[arg-type]
    kv.grow("one", num_held, len(tokens))
    kv.commit("one", tokens, len(tokens))
    kv.close("one")
    kv.check()
    return num_held


def pages(num: int = 64, num_cached: int = 64, *, is_session_aware: bool = True) -> KvManager:
    return KvManager(num, NoMover(), num_cached, is_session_aware=is_session_aware)


def found(kv: KvManager, word: str, salt: str = "") -> int:
    return kv.lookup(prompt(word), salt).num_tokens // PAGE_TOKENS


def test_the_last_token_always_runs() -> None:
    assert [num_cacheable(n) for n in (0, 1, 16, 17, 32, 33)] == [0, 0, 0, 1, 1, 2]


@given(st.lists(st.text("ab", max_size=5), max_size=25))
def test_with_room_for_all_every_prefix_that_ran_is_found(words: list[str]) -> None:
    kv = pages(512, 512)
    seen: set[str] = set()
    for word in words:
        longest = max((n for n in range(len(word) + 1) if word[:n] in seen), default=0)
        assert ran(kv, word) == longest * PAGE_TOKENS
        seen.update(word[:n] for n in range(1, len(word) + 1))


def test_a_forged_hash_collision_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "chain_hash", lambda parent, tokens: 7)
    kv = pages()
    ran(kv, "aa")
    assert found(kv, "a") == 1
    assert found(kv, "b") == 0
    assert ran(kv, "b") == 0
    assert found(kv, "a") == 1  # the one that was there stays


def test_the_same_page_after_another_parent_is_a_miss() -> None:
    kv = pages()
    ran(kv, "ab")
    ran(kv, "b")
    assert found(kv, "bb") == 1


def test_a_tenant_finds_nothing_of_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = pages()
    ran(kv, "ab", salt="one")
    assert [found(kv, "ab", salt) for salt in ("one", "two", "")] == [2, 0, 0]
    monkeypatch.setattr(prefix, "chain_hash", lambda parent, tokens: 7)
    kv = pages()
    ran(kv, "a", salt="one")
    assert found(kv, "a", "two") == 0  # not even when the hashes collide


def test_least_recently_used_go_first_and_a_chain_goes_from_its_tail() -> None:
    kv = pages(64, 4)
    ran(kv, "aa")
    ran(kv, "bb")
    ran(kv, "aa")
    ran(kv, "c")
    assert [found(kv, word) for word in ("aa", "bb", "c")] == [2, 1, 1]


def replay(*, is_session_aware: bool) -> int:
    """Two conversations grow turn by turn among one-off prompts; the tokens they found."""
    kv = pages(64, 12, is_session_aware=is_session_aware)
    num_found = 0
    for turn in range(1, 5):
        for session in "xy":
            num_found += ran(kv, session * turn, session=session)
        for number in range(5):
            ran(kv, chr(200 + 10 * turn + number) * 2)
    return num_found


def test_conversations_outlive_one_off_prompts() -> None:
    assert replay(is_session_aware=True) > 2 * replay(is_session_aware=False)


def test_conversations_never_take_all_of_the_cache() -> None:
    idle = IdlePages(8)
    for page in range(8):
        idle.push(page, is_kept=True)
    idle.push(8, is_kept=False)
    assert idle.pop() == 0  # the oldest conversation beyond three quarters, not page 8
    assert len(idle) == 8


def test_shared_prompt_pages_count_once() -> None:
    kv = pages(64, 0)
    kv.open("0", [])
    kv.grow("0", 0, 500)
    for child in "1234567":
        kv.fork("0", child)
    for name in "01234567":
        kv.grow(name, 500, 516)
    kv.check()
    # 31 full pages are one; each has its own last page and the next
    assert kv.pool.num_pages - kv.pool.num_available == 31 + 8 * 2


def test_sequences_side_by_side_keep_their_pages_in_runs() -> None:
    kv = pages(96, 0)
    for name in "abc":
        kv.open(name, [1] * 40, max_tokens=400)
        kv.grow(name, 0, 40)
    for end in range(40, 400):
        for name in "abc":
            kv.grow(name, end, end + 1)
    for name in "abc":
        table = kv.pages(name)
        assert table == list(range(table[0], table[0] + 25))
