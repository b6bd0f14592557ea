"""The keys of ``[dashboard]`` in ``longpole.toml`` and their defaults; imports nothing heavy."""

from typing import Final

from longpole.config import Scalar

DEFAULTS: Final[dict[str, Scalar | None]] = {
    "host": "127.0.0.1",
    "port": 8501,
}
