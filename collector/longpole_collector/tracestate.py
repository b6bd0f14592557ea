"""What a sender's own sampling says of a span: OTel's entry in the W3C trace state.

``ot=th:c;rv:6e6d1a75832a2f``: ``th`` is the rejection threshold T, up to 14 hex digits with the
zeros at the end left off; ``rv`` is the randomness R, if it is not the trace id's last 56 bits.
A span was kept because R >= T, so it stands for 2^56 / (2^56 - T) spans like it (OpenTelemetry,
TraceState: Probability Sampling).
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

ALL: Final = 1 << 56
"""Thresholds and randomness are numbers below this."""
_DIGITS: Final = 14
_THRESHOLD: Final = re.compile(r"[0-9a-f]{1,14}")
_RANDOMNESS: Final = re.compile(r"[0-9a-f]{14}")
_MAX_CHARS: Final = 4096
"""A trace state is 512 characters by the standard; a longer one than this is not looked at."""


class Sampled(NamedTuple):
    """What a span's sender said; ``None`` is not said.

    Attributes:
        weight: how many spans like it this one stands for.
        randomness: R, where it is not the trace id's.
    """

    weight: float | None
    randomness: int | None


NOT_SAID: Final = Sampled(None, None)


def threshold_of(probability: float) -> int:
    """The threshold that keeps this share; :data:`ALL` for none."""
    return ALL - round(min(max(probability, 0.0), 1.0) * ALL)


def weight_of(threshold: int) -> float:
    """How many each that passes a threshold below :data:`ALL` stands for."""
    return ALL / (ALL - threshold)


def state_of(weight: float | None, randomness: int | None) -> str:
    """The trace state that says so; empty if there is nothing to say."""
    parts: list[str] = []
    if weight is not None and weight >= 1:
        threshold = threshold_of(1 / weight)
        parts.append(f"th:{f'{threshold:014x}'.rstrip('0') or '0'}")
    if randomness is not None:
        parts.append(f"rv:{randomness:014x}")
    return f"ot={';'.join(parts)}" if parts else ""


@lru_cache(maxsize=4096)
def sampled(state: str) -> Sampled:
    """What a trace state says; nothing where it is broken.

    Args:
        state: the header's text, empty for none.
    """
    if "ot=" not in state or len(state) > _MAX_CHARS:
        return NOT_SAID
    for entry in state.split(","):
        name, _, value = entry.strip().partition("=")
        if name == "ot":
            return _own(value)
    return NOT_SAID


def _own(value: str) -> Sampled:
    weight = randomness = None
    for part in value.split(";"):
        key, _, text = part.partition(":")
        if key == "th" and _THRESHOLD.fullmatch(text):
            weight = weight_of(int(text.ljust(_DIGITS, "0"), 16))
        elif key == "rv" and _RANDOMNESS.fullmatch(text):
            randomness = int(text, 16)
    return Sampled(weight, randomness)
