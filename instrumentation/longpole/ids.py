"""Ids of spans and traces that have nothing to do with the module ``random``.

An application that seeds ``random`` would give its traces the same ids in every run, so that two
runs look like one.
"""

import os

from opentelemetry.sdk.trace.id_generator import IdGenerator


class Ids(IdGenerator):
    """Ids from the operating system's generator, never 0."""

    def generate_span_id(self) -> int:
        """A random number of 64 bits."""
        return int.from_bytes(os.urandom(8)) or self.generate_span_id()

    def generate_trace_id(self) -> int:
        """A random number of 128 bits."""
        return int.from_bytes(os.urandom(16)) or self.generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """All bits are (W3C Trace Context, level 2)."""
        return True
