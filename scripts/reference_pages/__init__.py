"""The pages of docs/reference, each made from the code; ``scripts/make-reference`` writes them."""

from collections.abc import Callable

from reference_pages import command_line, configuration, data, documents, flags, metrics
from reference_pages.documents import Run

__all__ = ["PAGES", "Run", "documents"]

PAGES: dict[str, Callable[[], str]] = {
    "cli": command_line.cli,
    "exit-codes": command_line.exit_codes,
    "configuration": configuration.configuration,
    "views": data.views,
    "attributes": data.attribute_keys,
    "flags": flags.flags,
    "metrics": metrics.metrics,
}
"""Page -> who makes it; the page ``documents`` needs somebody who runs commands."""
