"""Lets the core run where only torch and numpy are installed, e.g. on a GPU machine.

``longpole.errors`` and ``longpole.vocab`` need nothing, but the SDK's package around them needs
OpenTelemetry. Where that is missing, the package stands in ``sys.modules`` without being run: its
submodules can be imported, and what needs OpenTelemetry fails as it would have.
"""

import importlib.util
import sys


def prepare() -> None:
    """Do so if it must be done; nothing happens where OpenTelemetry is installed."""
    try:
        import opentelemetry.context  # noqa: F401 - only whether it is there
    except ModuleNotFoundError:
        spec = importlib.util.find_spec("longpole")
        if spec is not None and "longpole" not in sys.modules:
            sys.modules["longpole"] = importlib.util.module_from_spec(spec)
