"""The first look's questions, asked while the browser still fetches what it draws with.

A browser needs a second from the address to the page's first run. What the address asks for is
known at once, and what is found by then is kept for that run.
"""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final
from urllib.parse import parse_qs

from longpole.errors import LongpoleError
from longpole.family import load
from longpole_dashboard import data
from longpole_dashboard.model import selection, window
from longpole_dashboard.model.clock import UTC_CLOCK
from longpole_dashboard.model.selection import Known
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import source

log = logging.getLogger("longpole.dashboard.ahead")

OPENING: Final = "overview"
"""The page at the root."""
_one = ThreadPoolExecutor(1, "longpole-ahead")
_busy = Lock()


def begin(page: str, query: str) -> None:
    """Ask what a page will ask; only one address at a time, the others ask for themselves.

    Args:
        page: its name; of the root it is empty.
        query: of the address.
    """
    if _busy.acquire(blocking=False):
        _one.submit(_ask, page or OPENING, query)


def _ask(page: str, query: str) -> None:
    try:
        member = load("longpole_dashboard.pages", "PAGE", Page, _skip).get(page)
        if member is not None and member.ahead is not None:
            ask(member, query)
    except LongpoleError as error:
        log.debug("nothing asked ahead of %s: the page will say why (%s)", page, error)
    finally:
        _busy.release()


def _skip(name: str, error: Exception) -> None:
    log.debug("page %s cannot be loaded", name, exc_info=error)


def ask(member: Page, query: str) -> None:
    """Ask what a page will ask at an address, of the source that everybody sees."""
    address = parse_qs(query)
    projects = data.projects()
    named = address.get("project", [""])[-1]
    project = named if named in projects and named != data.DEFAULT_PROJECT else None
    chosen = source().narrowed(project)
    held = data.ask_of(chosen, window.bounds)
    if not held.num_traces or member.ahead is None:
        return
    now_ns, is_recorded = time.time_ns(), source().is_recorded
    opening = selection.default_range(held, now_ns, is_recorded)
    selected, _ = selection.read(address, Known(held, opening, projects), UTC_CLOCK)
    filters = selection.resolve(selected, held, now_ns, is_recorded)
    member.ahead(filters, partial(data.begin_of, chosen))
