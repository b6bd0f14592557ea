"""What a check is: the keys of its table, and what it finds in the data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import polars as pl

from longpole_analytics.attribution import CauseRules
from longpole_analytics.scorecard.rules import CardRules
from longpole_analytics.slo.check import Standing

Status = Literal["pass", "fail", "undecided"]
EXIT_CODES: Final[dict[Status, int]] = {"pass": 0, "fail": 3, "undecided": 4}
"""By verdict; a check that fails outweighs one that cannot be decided."""
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        status: ``pass``, ``fail`` or ``undecided``: too little is known to say.
        text: why, in a sentence.
        n: requests that it rests on.
        is_certain: it fails, and so does every value of the interval.
        n_needed: requests that would decide; ``None`` if it is decided, or if none would.
        details: numbers for the document.
    """

    status: Status
    text: str
    n: int
    is_certain: bool = False
    n_needed: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Data(Protocol):
    """What checks ask for."""

    def requests(self, where: str | None) -> pl.DataFrame:
        """The requests of the window that meet a condition."""

    def sides(self, base: str, cand: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Two populations, named as ``longpole compare`` takes them, with their costs."""

    def standings(self, ids: Sequence[str]) -> list[Standing]:
        """Where objectives stand at the window's end; all of them where none is named."""

    def cause_rules(self) -> CauseRules:
        """What a slice must show to be blamed."""

    def card_rules(self) -> CardRules:
        """Thresholds of a scorecard."""

    def baseline(self, path: str) -> dict[str, Any]:
        """A stored baseline."""


@dataclass(frozen=True)
class Gate:
    """A member of the family of checks.

    Attributes:
        keys: of its table, with their defaults; a type takes the place of one that must be given.
        run: looks at the data.
    """

    keys: Mapping[str, Any]
    run: Callable[[Options, Data], Finding]


@dataclass(frozen=True)
class Check:
    """One configured check."""

    name: str
    kind: str
    gate: Gate = field(repr=False)
    options: Options

    def run(self, data: Data) -> Finding:
        """What it finds."""
        return self.gate.run(self.options, data)


def verdict(findings: Sequence[Finding]) -> Status:
    """The verdict of all: one that fails decides, then one that is undecided."""
    told = {finding.status for finding in findings}
    if "fail" in told:
        return "fail"
    return "undecided" if "undecided" in told else "pass"
