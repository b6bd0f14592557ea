"""The collector: OTLP in, one table of spans, read-only SQL out.

It acknowledges a request only after the body is on disk, reads every dialect into the one span
record, and is the only process that opens the database. It computes no analytics.

A name is imported when it is first used, so that the settings stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longpole_collector.app import background
    from longpole_collector.settings import Settings
    from longpole_collector.stores import open_reader
    from longpole_collector.stores.base import Reader, Store

__all__ = ["Reader", "Settings", "Store", "background", "open_reader"]

_FILES = {
    "Reader": "stores.base",
    "Settings": "settings",
    "Store": "stores.base",
    "background": "app",
    "open_reader": "stores",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
