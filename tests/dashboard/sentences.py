"""What sentences with numbers are tested by: their numbers, values to draw, and a bad name."""

import re
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as some

HOSTILE = "a\n\u202eb\x1b[31m<img src=x>" + "c" * 200
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?: (?:ms|s|%)(?!\w))?")
few = settings(max_examples=40, deadline=None)
sizes = some.integers(1, 5_000)
times = some.floats(0.01, 40_000, allow_subnormal=False)
ratios = some.floats(0, 1, allow_subnormal=False)
names = some.sampled_from(["alpha", "beta", "gamma", "delta"])


def numbers(line: str) -> list[str]:
    """The numbers of a sentence, with the unit that stands behind."""
    return _NUMBER.findall(line)


def assert_of(line: str, shown: Iterable[str], said: Iterable[str] = ()) -> None:
    """Every number is one that the page shows, or one of the sentence's own words."""
    known = {number for each in shown for number in numbers(each)}
    assert set(numbers(line)) <= known | set(said), line
