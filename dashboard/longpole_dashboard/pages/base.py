"""What a page is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from longpole_dashboard.model.window import Bounds, Filters
from longpole_dashboard.widgets import Selection


def _always() -> bool:
    return True


Begin = Callable[..., Callable[[], Any]]
"""``data.begin``: asks a question, and gives what waits for its answer."""


@dataclass(frozen=True)
class Page:
    """A member of the family of pages; its file's name is its address.

    ``draw`` gets what the filter bar says and what the store holds; ``is_shown`` says whether the
    page is in the menu; at its address it is in any case. ``ahead`` asks what ``draw`` will need,
    before there is a browser to draw in; ``None`` asks nothing. ``without_store`` draws what can be
    told while the store cannot be asked; ``None`` draws nothing but why.
    """

    title: str
    icon: str
    order: int
    draw: Callable[[Selection, Bounds], None]
    is_shown: Callable[[], bool] = _always
    ahead: Callable[[Filters, Begin], object] | None = None
    without_store: Callable[[], None] | None = None
