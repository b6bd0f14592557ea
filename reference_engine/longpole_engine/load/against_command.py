"""``longpole load A --against B``: blocks in turn, their traces, and `longpole compare` on them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import LongpoleError, UsageError
from longpole_engine.load.against import Pairs, Side, check
from longpole_engine.load.client import Client, Target
from longpole_engine.load.program import Program
from longpole_engine.load.replay import ask
from longpole_engine.load.replica import Replica, Store
from longpole_engine.load.served import UNKNOWN, model_of
from longpole_engine.load.summary import summary
from longpole_engine.load.traces import BLOCK, Traces
from longpole_engine.settings import DEFAULTS

if TYPE_CHECKING:
    from longpole_engine.load.alarm import Alarm
    from longpole_engine.load.arrivals import Closed, Session
    from longpole_engine.load.progress import Progress
    from longpole_engine.load.run import Asker, Plan

SCHEMA: Final = "longpole.load_against/1"
ENGINE: Final = "engine:"
"""Begins a target that is an engine of ours, started for the run; its settings follow."""
OPEN_END: Final = 4
"""Exit code: not enough evidence."""
_SETTLED_S: Final = 30.0
_POLL_S: Final = 0.2


class Against:
    """What the command line asks for.

    Args:
        where: baseline and candidate, as they were named.
        is_command: they are command lines.
        plan: of each block.
        text: what was said of the arrivals.
        arrivals: of the blocks of a pair.
        given: the options.
    """

    def __init__(
        self,
        where: tuple[str, str],
        is_command: bool,
        plan: Plan,
        text: str,
        arrivals: Callable[[int], Iterable[Session] | Closed],
        given: Mapping[str, Any],
    ) -> None:
        self.where, self._is_command, self._plan = where, is_command, plan
        self.text, self._arrivals, self._given = text, arrivals, given
        self.releases = (given["release"] or "base", given["against_release"] or "candidate")
        if self.releases[0] == self.releases[1]:
            raise UsageError(f"both sides are called '{self.releases[0]}': name them apart")
        if plan.warm_up_s:
            raise UsageError("--warm-up is of one target: here each is asked once before the first")
        self.settings = [None if is_command else settings(each) for each in where]
        self.route: str = given["route"] or "load"
        self.url: str | None = given["otlp"]
        self.db = None if self.url else Path(given["db"])

    @property
    def has_children(self) -> bool:
        """Whether processes are started meanwhile."""
        return self._is_command or self.db is not None or any(e is not None for e in self.settings)

    async def play(self, progress: Progress, alarm: Callable[[], Alarm | None]) -> Pairs:
        """Start what is needed, play, and see that every trace is in the store."""
        async with AsyncExitStack() as stack:
            url, waker = self.url, alarm()
            if waker is not None:
                stack.callback(waker.close)
            if self.db is not None:
                store = await _started(stack, Store(self.db))
                url = store.url
            sides = [await self._side(stack, at, str(url)) for at in (0, 1)]
            await check(self._plan, sides)
            await asyncio.to_thread(ask, str(url), _key(), "SELECT 1", {})
            traces = Traces(str(url), self._plan.model, self.route)
            pairs = Pairs(
                self._plan,
                (sides[0], sides[1]),
                self._given["blocks"],
                self._begun(progress),
                traces,
                progress,
                waker.until if waker else None,
            )
            with _interruptible(pairs):
                await pairs()
            progress.clear()
            if not traces.flush():
                click.echo(f"not all traces reached {url}", err=True)
            await self._settled(str(url), pairs)
            return pairs

    def _begun(self, progress: Progress) -> Callable[[int], Iterable[Session] | Closed]:
        """The arrivals of each block; says that it begins."""
        number = count(1)

        def arrivals(pair: int) -> Iterable[Session] | Closed:
            at = next(number)
            release = self.releases[(at - 1) % 2]
            progress.clear()
            click.echo(f"block {at} of {2 * self._given['blocks']}: {release}", err=True)
            return self._arrivals(pair)

        return arrivals

    async def _side(self, stack: AsyncExitStack, at: int, url: str) -> Side:
        where, wanted = self.where[at], self.settings[at]
        target: Asker
        named = (self._given["against_model"] if at else None) or self._given["model"]
        model = named or UNKNOWN
        if self._is_command:
            target = Program(where)
        elif wanted is not None:
            engine = await _started(stack, Replica({"otlp_endpoint": url, **wanted}))
            target, model = Client(Target.at(engine.url, None)), engine.model
        else:
            key = os.environ.get("OPENAI_API_KEY")
            address = Target.at(where, key)
            target = Client(address)
            model = named or await asyncio.to_thread(model_of, address, key)
        return Side(self.releases[at], where, target, model, is_ours=wanted is not None)

    async def _settled(self, url: str, pairs: Pairs) -> None:
        """Wait until the store has the traces of all that was sent, for half a minute at most."""
        wanted = sum(len(block.run.sent) for block in pairs.whole)
        if not wanted:
            return
        query = f"SELECT count(*) AS num FROM traces WHERE {self.condition(pairs)}"  # noqa: S608
        deadline = time.monotonic() + _SETTLED_S
        while True:
            (found,) = await asyncio.to_thread(ask, url, _key(), query, {})
            if found["num"] >= wanted:
                return
            if time.monotonic() > deadline:
                click.echo(f"{found['num']} of {wanted} traces are in the store", err=True)
                return
            await asyncio.sleep(_POLL_S)

    def condition(self, pairs: Pairs) -> str:
        """SQL: the requests of the whole pairs."""
        first_ns, last_ns = pairs.window
        return f"route = {_quoted(self.route)} AND start_ns BETWEEN {first_ns} AND {last_ns}"

    def compare(self, pairs: Pairs) -> list[str]:
        """The words after ``longpole compare``."""
        sides = (f"route_version={_quoted(release)}" for release in self.releases)
        place = ["--db", str(self.db)] if self.db else ["--url", str(self.url)]
        words = [*sides, *place, "--where", self.condition(pairs)]
        words += ["--cluster", BLOCK, "--randomised", "--target", self._given["target"]]
        if self._given["margin"] is not None:
            words += ["--margin", str(self._given["margin"])]
        if self.text.startswith("closed:"):
            words.append("--closed-loop")
        return words

    def document(self, pairs: Pairs) -> dict[str, Any]:
        """The document but for the comparison."""
        return {
            "schema": SCHEMA,
            "sides": [
                {"release": side.release, "target": side.where, "model": side.model}
                for side in pairs.sides
            ],
            "num_pairs": pairs.num_pairs,
            "num_whole_pairs": len(pairs.whole) // 2,
            "is_partial": pairs.is_stopped,
            "blocks": [
                {
                    "pair": block.pair,
                    "release": block.side.release,
                    **{k: v for k, v in summary(block.run, self.text).items() if k != "schema"},
                }
                for block in pairs.blocks
            ],
        }


def settings(where: str) -> dict[str, str] | None:
    """The engine's settings of a target ``engine:KEY=VALUE,...``; ``None`` of another target.

    Raises:
        UsageError: no such setting, or one that is not the target's to choose.
    """
    if not where.startswith(ENGINE):
        return None
    found = {}
    for words in filter(None, where.removeprefix(ENGINE).split(",")):
        key, sign, value = (word.strip() for word in words.partition("="))
        if key not in DEFAULTS or key in ("host", "port", "otlp_endpoint") or not sign or not value:
            raise UsageError(f"'{where}': '{words}' is not KEY=VALUE with a KEY of [engine]")
        found[key] = value
    return found


def play(asked: Against, is_json: bool, progress: Progress) -> int:
    """Play it, compare, tell; the exit code is that of the comparison."""
    from longpole_engine.load import commands as load

    compare = _compare_command()
    loop = None if asked.has_children else load.fast_loop()
    if asked.settings != [None, None]:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # engines share the cores
    with asyncio.Runner(loop_factory=loop) as runner:
        pairs = runner.run(asked.play(progress, load.alarm))
    has_enough = len(pairs.whole) >= 4
    document = asked.document(pairs)
    if is_json:
        code, document["compare"] = OPEN_END, None
        if has_enough:
            code, document["compare"] = _card(compare, asked.compare(pairs))
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo("\n".join(_told(document)))
        code = OPEN_END
        if has_enough:
            words = asked.compare(pairs)
            click.echo(f"{'again':<12}longpole compare {' '.join(map(_shell, words))}")
            code = _said(compare, words)
    if not has_enough:
        click.echo("inconclusive: fewer than two pairs of blocks came to their end", err=True)
    elif pairs.is_stopped and not code:
        click.echo("stopped before its end: a part cannot say that a candidate may go", err=True)
        code = OPEN_END
    return code


# --- how --------------------------------------------------------------------------------------


async def _started(stack: AsyncExitStack, command: Any) -> Any:
    await command.start()
    stack.push_async_callback(command.stop)
    return command


@contextmanager
def _interruptible(pairs: Pairs) -> Iterator[None]:
    """Ctrl-C stops the pairs; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        click.echo("stopping: whole pairs of blocks are kept and compared", err=True)
        pairs.stop()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _compare_command() -> click.Command:
    """``longpole compare``, by the switchboard: the engine imports nothing above it."""
    root = click.get_current_context().find_root()
    command = root.command.get_command(root, "compare") if isinstance(
        root.command, click.Group
    ) else None  # fmt: skip
    if command is None:
        raise UsageError("run it as `longpole load`")
    return command


def _said(compare: click.Command, words: Sequence[str]) -> int:
    """Its exit code; what it says goes where it says it."""
    try:
        compare.main([*words], prog_name="longpole compare", standalone_mode=False)
    except SystemExit as end:
        return int(end.code or 0)
    except LongpoleError as error:  # what was played is told all the same
        click.echo(f"not compared: {error}", err=True)
        return error.exit_code
    return 0


def _card(compare: click.Command, words: Sequence[str]) -> tuple[int, dict[str, Any] | None]:
    with tempfile.TemporaryDirectory(prefix="longpole-load-") as folder:
        out = Path(folder) / "card.json"
        code = _said(compare, [*words, "--json", "--out", str(out)])
        return code, json.loads(out.read_text("utf-8")) if out.exists() else None


def _key() -> str | None:
    return os.environ.get("LONGPOLE_COLLECTOR_API_KEY")


def _shell(word: str) -> str:
    """The word for a shell; one with SQL's quotes stays readable."""
    is_plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if is_plain else shlex.quote(word)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _told(document: Mapping[str, Any]) -> Iterable[str]:
    """A line a side."""
    for side in document["sides"]:
        own = [block for block in document["blocks"] if block["release"] == side["release"]]
        num_due = sum(block["num_due"] for block in own)
        num_whole = sum(block["num_completed"] for block in own)
        yield (
            f"{side['release']:<12}{side['target']}: {len(own)} blocks, {num_whole} of {num_due} "
            "requests answered in full"
        )
    if any(block["is_behind"] for block in document["blocks"]):
        yield "THE GENERATOR FELL BEHIND in some blocks: their figures are its own, too"
    if document["is_partial"]:
        yield f"stopped before its end: {document['num_whole_pairs']} whole pairs are compared"
