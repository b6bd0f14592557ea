"""What a bar is, and the command that runs a part's bars and ends with a table."""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks import machine

B = TypeVar("B")


class Bar(NamedTuple):
    """One line of the table."""

    name: str
    value: float
    unit: str
    relation: str
    """``>=``, ``<=``, ``<``, ``==``, or empty where nothing is asked."""
    need: float
    sides: Mapping[str, float | str]
    """What the value was made of, each with its unit in its name."""

    @property
    def is_met(self) -> bool | None:
        """Whether the value passes; ``None`` where nothing is asked."""
        if not self.relation:
            return None
        is_met = {
            ">=": self.value >= self.need,
            "<=": self.value <= self.need,
            "<": self.value < self.need,
            "==": self.value == self.need,
        }[self.relation]
        return bool(is_met)  # numpy has truths of its own


def info(name: str, value: float, unit: str, sides: Mapping[str, float | str]) -> Bar:
    """A figure that nothing is asked of."""
    return Bar(name, value, unit, "", 0.0, sides)


def say(text: str) -> None:
    """One line of talk between the figures."""
    print(f"    {text}", flush=True)


def parser(doc: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """The arguments that every part has: names of bars, and a file for JSON."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("bars", nargs="*", help=f"of {', '.join(names)}")
    made.add_argument("--json", type=Path, help="write everything to this file too")
    return made


def chosen(
    parser: argparse.ArgumentParser, asked: Sequence[str], names: Sequence[str]
) -> list[str]:
    """The bars that were asked for, by default all; an unknown name ends the command."""
    found = [name for words in asked for name in words.split(",") if name]
    if unknown := set(found) - set(names):
        parser.error(f"no such bar: {', '.join(sorted(unknown))}")
    return found or list(names)


def main(
    functions: Mapping[str, str],
    names: Sequence[str],
    bench: AbstractContextManager[B],
    json_path: Path | None,
    more: Callable[[B], dict[str, Any]] = lambda bench: {},
) -> int:
    """Run bars, print both sides of each, end with a table; 1 if one is not met or broke.

    Args:
        functions: bar -> the module that has a function of its name; it gets ``bench``.
        names: those to run, in order.
        bench: what they share, entered once.
        json_path: where everything is written too.
        more: further keys of that document.
    """
    facts = machine.facts()
    for key, value in facts.items():
        print(f"{key:<22}{value}")
    with bench as shared:
        bars, broken = _run(functions, names, shared)
        extra = more(shared)
    _table(bars)
    for name in broken:
        print(f"{name:<34} broke: see above")
    facts["load_average_1_min_at_end"] = os.getloadavg()[0]
    print(f"load average at the end {facts['load_average_1_min_at_end']:.1f}")
    if json_path:
        rows = [bar._asdict() | {"is_met": bar.is_met} for bar in bars]
        document = {"schema": "longpole.bench/1", "machine": facts, "bars": rows, "broken": broken}
        json_path.write_text(json.dumps(document | extra, indent=1))
    return int(bool(broken) or any(bar.is_met is False for bar in bars))


def _run(
    functions: Mapping[str, str], names: Sequence[str], bench: Any
) -> tuple[list[Bar], list[str]]:
    """All results, and the names of those that broke."""
    done: list[Bar] = []
    broken: list[str] = []
    for name in names:
        print(f"\n{name}", flush=True)
        begun = time.monotonic()
        try:
            bars: list[Bar] = getattr(import_module(functions[name]), name)(bench)
        except Exception:  # noqa: BLE001 - the others still run
            traceback.print_exc()
            broken.append(name)
            continue
        for bar in bars:
            print(f"  {bar.name.strip()} = {_number(bar.value)} {bar.unit}")
            for key, value in bar.sides.items():
                print(f"      {key:<34}{value if isinstance(value, str) else _number(value)}")
        print(f"  ({time.monotonic() - begun:.0f} s)", flush=True)
        done += bars
    return done, broken


def _table(bars: list[Bar]) -> None:
    print(f"\n{'bar':<34}{'value':>12} {'unit':<8}{'asked':>12}")
    for bar in bars:
        asked = f"{bar.relation} {_number(bar.need)}" if bar.relation else ""
        verdict = {True: "pass", False: "FAIL", None: ""}[bar.is_met]
        print(f"{bar.name:<34}{_number(bar.value):>12} {bar.unit:<8}{asked:>12}  {verdict}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
