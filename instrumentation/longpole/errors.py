"""Every error longpole raises on purpose.

    LongpoleError
    ├── UsageError       wrong flags, arguments or configuration        exit code 2
    ├── NotEnoughData    an honest answer needs more samples            exit code 4
    ├── Unreachable      server or database out of reach                exit code 5
    │   └── StoreBusy    the store is busy: the same call again may do
    └── BadInput         data that cannot be read: says what and where  exit code 1

A message says what happened, on which value, and what to do.
"""

from typing import ClassVar


class LongpoleError(Exception):
    """Base of all; the command line prints its message and exits with ``exit_code``."""

    exit_code: ClassVar[int] = 1


class UsageError(LongpoleError):
    """Wrong flags, arguments or configuration."""

    exit_code = 2


class NotEnoughData(LongpoleError):
    """An honest answer needs more samples."""

    exit_code = 4


class Unreachable(LongpoleError):
    """A server or a database cannot be reached."""

    exit_code = 5


class StoreBusy(Unreachable):
    """The store is busy; the same call again may succeed."""


class BadInput(LongpoleError):
    """Data that cannot be read."""
