"""Page tables of the sequences: growing, sharing, copying on write, letting go.

Integers only, no tensors: the simulator runs on it as the engine does. What must happen to the
memory itself is told to a :class:`Mover`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from longpole_engine.kv.pool import PAGE_TOKENS, IdlePages, PagePool, num_pages
from longpole_engine.kv.prefix import Chain, PrefixIndex, root

_NUM_SESSIONS: Final = 4096
"""Sessions remembered; the one longest away is forgotten first."""


class Mover(Protocol):
    """Does to the memory what the tables say."""

    def copy(self, source: int, target: int) -> None:
        """Copy a page."""

    def save(self, pages: Sequence[int]) -> object:
        """Copy pages out of the pool."""

    def load(self, saved: object, pages: Sequence[int]) -> None:
        """Copy saved pages back, to other places."""


class NoMover:
    """Moves nothing: for a simulator, whose pages have no content."""

    def copy(self, source: int, target: int) -> None:
        """Nothing."""

    def save(self, pages: Sequence[int]) -> object:
        """Nothing."""
        return None

    def load(self, saved: object, pages: Sequence[int]) -> None:
        """Nothing."""


class Movers:
    """Several memories with the same page numbers, moved together.

    Args:
        parts: one mover each.
    """

    def __init__(self, *parts: Mover) -> None:
        self._parts = parts

    def copy(self, source: int, target: int) -> None:
        """Copy a page."""
        for part in self._parts:
            part.copy(source, target)

    def save(self, pages: Sequence[int]) -> object:
        """Copy pages out of the pool."""
        return [part.save(pages) for part in self._parts]

    def load(self, saved: object, pages: Sequence[int]) -> None:
        """Copy saved pages back, to other places."""
        for part, content in zip(self._parts, saved, strict=True):  # type: ignore[call-overload]
            part.load(content, pages)


class Hit(NamedTuple):
    """What the prefix cache holds of a prompt; ``num_idle`` of the pages have no owner."""

    num_tokens: int
    num_idle: int


class _Table:
    """One sequence's pages in the order of its tokens."""

    def __init__(self, pages: list[int], chain: Chain, session: str | None, run: int) -> None:
        self.pages = pages
        self.chain = chain
        self.session = session
        self.run = run


class Saved(NamedTuple):
    """A sequence kept aside: its table as it was, and the content of its pages."""

    table: _Table
    content: object


class KvManager:
    """The tables over one pool.

    Args:
        num_pages: size of the pool.
        mover: does what the tables say to the memory.
        num_cached: pages the prefix cache may hold that nobody owns; ``None`` switches it off.
        is_session_aware: pages of returning sessions are given up last.
    """

    def __init__(
        self,
        num_pages: int,
        mover: Mover,
        num_cached: int | None = None,
        *,
        is_session_aware: bool = True,
    ) -> None:
        self.index = PrefixIndex()
        self.pool = PagePool(num_pages, IdlePages(num_cached or 0))
        self._mover = mover
        self._has_cache = num_cached is not None
        self._is_session_aware = is_session_aware
        self._tables: dict[str, _Table] = {}
        self._sessions: OrderedDict[str, int] = OrderedDict()

    def lookup(self, tokens: Sequence[int], salt: str) -> Hit:
        """What :meth:`open` would find; changes nothing."""
        if not self._has_cache:
            return Hit(0, 0)
        pages, _ = self.index.match(tokens, root(salt))
        return Hit(len(pages) * PAGE_TOKENS, sum(page in self.pool.idle for page in pages))

    def open(
        self,
        name: str,
        tokens: Sequence[int],
        *,
        salt: str = "",
        session: str | None = None,
        max_tokens: int = 0,
    ) -> int:
        """Begin a table with what the prefix cache holds; returns the number of tokens held.

        Args:
            name: of the sequence.
            tokens: all that will be computed or found.
            salt: the tenant; only its own pages are found.
            session: the conversation; one seen before is likely to be seen again.
            max_tokens: how long it may become: a run of free pages as long is preferred.
        """
        chain = root(salt)
        pages: list[int] = []
        if self._has_cache:
            pages, chain = self.index.match(tokens, chain)
            self.pool.share(pages)
        if session is not None:
            self._sessions[session] = self._sessions.pop(session, 0) + 1
            if len(self._sessions) > _NUM_SESSIONS:
                self._sessions.popitem(last=False)
        run = max(1, num_pages(max(max_tokens, len(tokens))))
        self._tables[name] = _Table(pages, chain, session, run)
        return len(pages) * PAGE_TOKENS

    def is_open(self, name: str) -> bool:
        """Whether the sequence has a table."""
        return name in self._tables

    def pages(self, name: str) -> list[int]:
        """The sequence's pages, in order; not to be changed."""
        return self._tables[name].pages

    def num_own(self, name: str) -> int:
        """Pages that no other table names."""
        counts = self.pool.counts
        return sum(counts[page] == 1 for page in self._tables[name].pages)

    def is_tail_shared(self, name: str, num_tokens: int) -> bool:
        """Whether the page of token ``num_tokens`` exists and has other owners: a write copies."""
        pages = self._tables[name].pages
        at = num_tokens // PAGE_TOKENS
        return at < len(pages) and self.pool.counts[pages[at]] > 1

    def grow(self, name: str, start: int, end: int) -> None:
        """Make room for tokens ``start`` to ``end`` and make their pages the sequence's own.

        Raises:
            NoPages: the pool is exhausted; the table is as long as it could become.
        """
        pages = self._tables[name].pages
        for at in range(start // PAGE_TOKENS, min(len(pages), num_pages(end))):
            if self.pool.counts[pages[at]] > 1:
                own = self.pool.take(self.index)
                self._mover.copy(pages[at], own)
                self.pool.release([pages[at]], self.index)
                pages[at] = own
        while len(pages) < num_pages(end):
            run = max(1, self._tables[name].run - len(pages))
            pages.append(self.pool.take(self.index, pages[-1] if pages else None, run))

    def fork(self, parent: str, child: str) -> None:
        """Begin a table with the same pages; whoever writes to a shared one first copies it."""
        table = self._tables[parent]
        self.pool.share(table.pages)
        self._tables[child] = _Table(list(table.pages), table.chain, table.session, table.run)

    def trim(self, name: str, num_tokens: int) -> None:
        """Give back the pages beyond ``num_tokens``: what was drafted and refused."""
        pages = self._tables[name].pages
        keep = num_pages(num_tokens)
        self.pool.release(pages[keep:], self.index)
        del pages[keep:]

    def commit(self, name: str, tokens: Sequence[int], num_computed: int) -> None:
        """Make the full pages among the first ``num_computed`` tokens known to the cache."""
        if self._has_cache:
            table = self._tables[name]
            if num_computed // PAGE_TOKENS > table.chain.num_pages:
                done = tokens[:num_computed]
                table.chain = self.index.extend(done, table.pages, table.chain)

    def close(self, name: str) -> None:
        """The sequence is done or starts over: give its pages back. Unknown names do nothing."""
        table = self._tables.pop(name, None)
        if table is not None:
            self._release(table)

    def save(self, name: str) -> Saved:
        """Copy a sequence's pages out of the pool and give them back."""
        table = self._tables.pop(name)
        saved = Saved(table, self._mover.save(table.pages))
        self._release(table)
        return saved

    def load(self, name: str, saved: Saved) -> None:
        """Bring back what :meth:`save` put away, into pages of its own.

        Raises:
            NoPages: the pool is exhausted.
        """
        table, content = saved
        pages: list[int] = []
        for left in range(len(table.pages), 0, -1):
            run = max(left, table.run - len(pages))
            pages.append(self.pool.take(self.index, pages[-1] if pages else None, run))
        self._mover.load(content, pages)
        self._tables[name] = _Table(pages, table.chain, table.session, table.run)

    def check(self) -> None:
        """The pool agrees with the tables.

        Raises:
            AssertionError: it does not.
        """
        self.pool.check(table.pages for table in self._tables.values())
        known = self.index.pages()
        if any(page not in known for page in self.pool.idle):
            raise AssertionError("a cached page is not known")
        if any(self.pool.counts[page] == 0 and page not in self.pool.idle for page in known):
            raise AssertionError("a known page is free")

    def _release(self, table: _Table) -> None:
        is_kept = self._is_session_aware and self._sessions.get(table.session or "", 0) > 1
        self.pool.release(table.pages, self.index, is_kept=is_kept)
