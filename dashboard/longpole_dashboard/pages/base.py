"""What a page is."""

from collections.abc import Callable
from dataclasses import dataclass

from longpole_dashboard.model.window import Bounds
from longpole_dashboard.widgets import Selection


@dataclass(frozen=True)
class Page:
    """A member of the family of pages; its file's name is its address.

    ``draw`` gets what the filter bar says and what the store holds.
    """

    title: str
    icon: str
    order: int
    draw: Callable[[Selection, Bounds], None]
