"""What a page is."""

from collections.abc import Callable
from dataclasses import dataclass

from longpole_dashboard.model.window import Bounds
from longpole_dashboard.widgets import Selection


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Page:
    """A member of the family of pages; its file's name is its address.

    ``draw`` gets what the filter bar says and what the store holds; ``is_shown`` says whether the
    page is in the menu; at its address it is in any case.
    """

    title: str
    icon: str
    order: int
    draw: Callable[[Selection, Bounds], None]
    is_shown: Callable[[], bool] = _always
