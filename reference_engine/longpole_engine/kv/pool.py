"""Pages of the key-value memory: which are free, which are cached, who owns the others.

Integers only, no tensors. A page holds 16 tokens of one or more sequences. It is *owned* while a
page table names it (its count says how many entries do), *cached* while none does but the prefix
cache still knows its content, and else *free*. Every page is in exactly one of the three states.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

PAGE_TOKENS: Final = 16


class NoPages(Exception):
    """Neither a free nor a cached page is left: the plan did not keep to the pool."""


class Cached(Protocol):
    """What the pool asks of the prefix cache."""

    def is_known(self, page: int) -> bool:
        """Whether the page's content can still be found."""

    def forget(self, page: int) -> None:
        """The page will be overwritten."""


def num_pages(num_tokens: int) -> int:
    """Pages that hold so many tokens."""
    return -(-num_tokens // PAGE_TOKENS)


class PagePool:
    """Counts of the pages.

    New tables start where a run as long as they may become is free, and grow into the page after
    their last one if they can: a sequence whose pages are one run is read without copying.

    Args:
        num_pages: size of the pool.
        idle: order in which cached pages are given up; the first goes first.
    """

    def __init__(self, num_pages: int, idle: "IdlePages") -> None:
        self.num_pages = num_pages
        self.counts = [0] * num_pages
        self.idle = idle
        self.num_free = num_pages
        self._is_free = bytearray(b"\x01" * num_pages)
        self._cursor = 0

    @property
    def num_available(self) -> int:
        """Pages a table may take: free ones, and cached ones that nobody owns."""
        return self.num_free + len(self.idle)

    def take(self, cached: Cached, after: int | None = None, run: int = 1) -> int:
        """Give a page to a table.

        Args:
            cached: is told of a page it loses.
            after: the table's last page; the one behind it is preferred.
            run: pages the table may need from here on.

        Raises:
            NoPages: none is left.
        """
        if self.num_free == 0:
            page = self.idle.pop()
            if page is None:
                raise NoPages(f"all {self.num_pages} pages are owned")
            cached.forget(page)
        else:
            page = self._pick(after, run)
            self._is_free[page] = 0
            self.num_free -= 1
        self.counts[page] = 1
        return page

    def share(self, pages: Iterable[int]) -> None:
        """One more table names these pages, owned or cached."""
        for page in pages:
            if self.counts[page] == 0:
                self.idle.remove(page)
            self.counts[page] += 1

    def release(self, pages: Sequence[int], cached: Cached, *, is_kept: bool = False) -> None:
        """A table gives pages back, its last first; known ones stay as cached.

        Args:
            pages: in the table's order.
            cached: says which are known.
            is_kept: the content is likely to be asked for again.
        """
        for page in reversed(pages):
            self.counts[page] -= 1
            if self.counts[page]:
                continue
            if cached.is_known(page):
                self.idle.push(page, is_kept=is_kept)
            else:
                self._free(page)
        while (page_out := self.idle.excess()) is not None:
            cached.forget(page_out)
            self._free(page_out)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Compare the counts with the tables.

        Raises:
            AssertionError: a page is lost, in two states, or miscounted.
        """
        counts = [0] * self.num_pages
        for table in tables:
            if len(set(table)) != len(table):
                raise AssertionError("a table names a page twice")
            for page in table:
                counts[page] += 1
        if counts != self.counts:
            raise AssertionError("a count differs from the number of entries that name the page")
        idle = set(self.idle)
        for page in range(self.num_pages):
            states = (counts[page] > 0) + (page in idle) + self._is_free[page]
            if states != 1:
                raise AssertionError(f"page {page} is in {states} states")
        if self.num_free != sum(self._is_free) or len(idle) != len(self.idle):
            raise AssertionError("free or cached pages are miscounted")

    def _free(self, page: int) -> None:
        self._is_free[page] = 1
        self.num_free += 1

    def _pick(self, after: int | None, run: int) -> int:
        if after is not None and after + 1 < self.num_pages and self._is_free[after + 1]:
            return after + 1
        wanted = b"\x01" * min(run, self.num_free)
        for pattern in (wanted, b"\x01"):
            for start in (self._cursor, 0):
                found = self._is_free.find(pattern, start)
                if found >= 0:
                    self._cursor = (found + len(wanted)) % self.num_pages
                    return found
        raise NoPages("the count of free pages is wrong")


class IdlePages:
    """Cached pages nobody owns, in two lines: seen once, and likely to return.

    Plain least-recently-used order is the first line alone. A page released as kept (a session
    that has come back before) waits in the second line, which is touched only when the first is
    empty, so one-off prompts do not push out conversations. The second line holds at most three
    quarters of all; its oldest page then falls back into the first.

    Args:
        capacity: pages held at most.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._once: dict[int, None] = {}
        self._kept: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._once) + len(self._kept)

    def __iter__(self) -> Iterator[int]:
        yield from self._once
        yield from self._kept

    def __contains__(self, page: int) -> bool:
        return page in self._once or page in self._kept

    def push(self, page: int, *, is_kept: bool) -> None:
        """The page's last owner has left."""
        (self._kept if is_kept else self._once)[page] = None
        if len(self._kept) * 4 > self.capacity * 3:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._once[oldest] = None

    def remove(self, page: int) -> None:
        """The page has an owner again."""
        if self._once.pop(page, page) is not None:
            del self._kept[page]

    def pop(self) -> int | None:
        """The page to give up next; ``None`` if there is none."""
        for line in (self._once, self._kept):
            if line:
                page = next(iter(line))
                del line[page]
                return page
        return None

    def excess(self) -> int | None:
        """A page above the capacity, taken out; ``None`` if there is none."""
        return self.pop() if len(self) > self.capacity else None
