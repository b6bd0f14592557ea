"""Many runs, each kept in a file as soon as it is done: what ended goes on where it was."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

from longpole.errors import BadInput, LongpoleError, UsageError
from longpole_dashboard.lab.stage_set import StageSet

Known = dict[tuple[str, int], dict[str, Any]]
"""Documents of runs by name and seed."""
MAX_FAILED: Final = 3
"""Runs one after another that cannot be played: then something else is wrong."""


class Work(NamedTuple):
    """What is wanted, in order; what is known of it, to which more is added; where it is kept."""

    plan: list[tuple[str, int]]
    known: Known
    file: Path | None


def kept_runs(path: Path | None, name: str) -> Known:
    """The runs of a file, which is made where there is none.

    A last line without an end was being written when the process ended: it does not count.

    Args:
        path: JSON Lines.
        name: the field that says what was played.

    Raises:
        BadInput: a line is no run.
        UsageError: it cannot be read or written.
    """
    if path is None:
        return {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            *lines, rest = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--runs {path}: {error}") from error
    if rest:
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            document = json.loads(line)
            found[document[name], document["seed"]] = document
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{path}, line {number}: no run of this command") from error
    return found


def played_all(
    work: Work,
    stage: Callable[[], AbstractContextManager[StageSet]],
    play: Callable[[StageSet, str, int], dict[str, Any]],
    say: Callable[[str], None],
) -> None:
    """Play what is not known yet; one that cannot be played is tried again after the others.

    Args:
        work: gets the documents.
        stage: opens the engines and the collector.
        play: plays one, by name and seed.
        say: is told what goes on.

    Raises:
        LongpoleError: one cannot be played, even on its second try.
    """
    left = [(each, False) for each in work.plan if each not in work.known]
    if not left:
        return
    num, num_done, num_failed = len(left), 0, 0
    with stage() as opened:
        while left:
            (name, seed), is_second = left.pop(0)
            say(f"[{num_done + 1}/{num}] {name}, seed {seed}")
            try:
                document = play(opened, name, seed)
            except LongpoleError as error:
                num_failed += 1
                if is_second or num_failed == MAX_FAILED:
                    raise
                say(f"{name}, seed {seed}: {error}; once more after the others")
                left.append(((name, seed), True))
                continue
            num_done, num_failed = num_done + 1, 0
            work.known[name, seed] = document
            if work.file is not None:
                with work.file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(document, allow_nan=False) + "\n")
