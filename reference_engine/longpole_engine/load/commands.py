"""``longpole load`` and ``longpole engine proxy``: send requests, and make a server fail."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from longpole.errors import LongpoleError, UsageError

if TYPE_CHECKING:
    from longpole_engine.load.alarm import Alarm
    from longpole_engine.load.arrivals import Closed, Session
    from longpole_engine.load.proxy import Fault
    from longpole_engine.load.run import Asker, Plan, Run

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_MAX_S = 366 * 86_400.0


class SpanType(click.ParamType[float]):
    """Seconds as a number with a unit, ``500ms``, ``30s``, ``5m``."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        found = _SPAN.fullmatch(str(value))
        if not found:
            self.fail(f"'{value}' is no time: 500ms, 30s, 5m, 1h", param, ctx)
        seconds = float(found[1]) * _SECONDS[found[2]]
        if seconds > _MAX_S:
            self.fail(f"'{value}' is more than a year", param, ctx)
        return seconds


class NumberRange(click.FloatRange):
    """A range without nan, which click's lets pass."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail("nan is no number", param, ctx)
        return found


_SHARE = NumberRange(0, 1)
_LENGTH = click.IntRange(1, 1_000_000)


@click.command("load")
@click.argument("url", required=False)
@click.option("--command", "line", help="A command instead of an address: prompt in, answer out.")
@click.option(
    "--arrivals", required=True, help="constant:R, poisson:R, gamma:R:CV2, onoff:R:ON_S:OFF_S, "
    "closed:N, a file (t_s or t_ms, input_tokens, output_tokens, block_ids, session), or a "
    "collector's address: its traffic again.",
)  # fmt: skip
@click.option("--speed", type=NumberRange(1e-6, 1e6), default=1.0, show_default=True,
              help="Of a recording's clock.")  # fmt: skip
@click.option("--since", type=SpanType(), default="24h", show_default=True, help="Of a collector.")
@click.option("--route", help="Of a collector's traffic; also the route of this run's traces.")
@click.option("--model", help="(default: the one that the server has)")
@click.option("--input-tokens", type=_LENGTH, default=128, show_default=True)
@click.option("--output-tokens", type=_LENGTH, default=64, show_default=True)
@click.option("--language", default="en", show_default=True, help="Of prompts.")
@click.option("--prompts", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Ask these, not words without meaning: JSON Lines, each the body of a chat "
              "request or {\"prompt\": \"...\"}.")  # fmt: skip
@click.option("--duration", type=SpanType(), help="Send for so long.")
@click.option("--requests", type=click.IntRange(1), help="Send so many.")
@click.option("--max-failures", type=click.IntRange(1), help="Stop after so many.")
@click.option("--warm-up", type=SpanType(), default="0s", help="Requests due before stand apart.")
@click.option("--turns", type=click.IntRange(1), default=1, show_default=True, help="A session.")
@click.option("--think", type=SpanType(), default="0s", help="Between a session's turns.")
@click.option("--timeout", type=SpanType(), default="120s", show_default=True, help="Of a request.")
@click.option("--max-in-flight", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--slow", type=_SHARE, default=0.0, help="Share of clients that read slowly.")
@click.option("--slow-pause", type=SpanType(), default="200ms", show_default=True)
@click.option("--cancel", type=_SHARE, default=0.0, help="Share that leaves in mid answer.")
@click.option("--cancel-after", type=click.IntRange(1), default=8, show_default=True,
              help="Chunks of content.")  # fmt: skip
@click.option("--disconnect", type=_SHARE, default=0.0, help="Share that leaves at once.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--otlp", help="Keep the run as traces: a collector's address.")
@click.option("--release", help="What the traces call the target: their route's version.")
@click.option("--against", metavar="TARGET",
              help="A candidate, to which the same is played in turn: an address, or a command "
              "where --command is given. Here a target may also be engine:KEY=VALUE,... with KEYs "
              "of [engine]: such an engine is started.")  # fmt: skip
@click.option("--against-release", help="What its traces are called (default: candidate).")
@click.option("--against-model", help="The model asked of it, where it is not --model.")
@click.option(
    "--blocks",
    type=click.IntRange(2),
    help="Of each target, in turn; each is --duration or --requests long (default: 10).",
)
@click.option(
    "--db",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder of both targets' traces (default: ./.longpole), without --otlp.",
)
@click.option("--target", metavar="[pQ:]METRIC", help="What decides, as of `longpole compare`.")
@click.option("--margin", type=NumberRange(0, 0.5, min_open=True), help="Likewise.")
@click.option("--json", "is_json", is_flag=True, help="One JSON document on standard output.")
def load(
    url: str | None, line: str | None, arrivals: str, is_json: bool, otlp: str | None, **given: Any
) -> None:
    """Send requests to an OpenAI-compatible URL, on time whatever comes back.

    Latency counts from the time a request was due, so a target that stalls cannot hide it. The
    key is OPENAI_API_KEY's. Prompts are words without meaning, or --prompts. Ctrl-C ends the run,
    and what has come is told.

    With --against the same load goes to two targets, block by block in turn, and `longpole compare`
    judges the candidate; the exit code is its: 0, 3 worse, 4 not enough evidence.
    """
    if (url is None) == (line is None):
        raise UsageError("name one target: an address, or --command")
    try:
        from longpole_engine.load.client import Client, Target
        from longpole_engine.load.program import Program
    except ModuleNotFoundError as error:
        raise LongpoleError(
            f"`longpole load` needs {error.name}: pip install 'longpole[engine]'"
        ) from error
    from longpole_engine.load.served import model_of
    from longpole_engine.load.summary import summary
    from longpole_engine.load.told import told
    from longpole_engine.load.traces import Part, Traces

    if given["prompts"] is not None:
        _check_generates_none()
    plan = _plan(given)
    if given["against"] is not None:
        where = (str(line if url is None else url), given["against"])
        sys.exit(_against(where, plan, arrivals, given | {"otlp": otlp}, line is not None, is_json))
    _check_alone(given)
    planned = _arrivals(arrivals, given)
    target: Asker
    if line is not None:
        target = Program(line)
    else:
        key = os.environ.get("OPENAI_API_KEY")
        at = Target.at(str(url), key)
        target = Client(at)
        plan = replace(plan, model=given["model"] or model_of(at, key))
    part = Part(given["release"])
    tracer = Traces(otlp, plan.model, given["route"] or "load", part) if otlp else None
    _allow_many_files()
    gc.freeze()  # what is loaded by now stays: collections need not look at it, and are short
    try:
        with asyncio.Runner(loop_factory=None if line else fast_loop()) as runner:
            done = runner.run(_run(plan, planned, target, tracer))
    finally:
        gc.unfreeze()
    found = {"target": line or url, **summary(done, arrivals)}
    if tracer is not None and not tracer.flush():
        click.echo(f"not all traces reached {otlp}", err=True)
    click.echo(json.dumps(found, indent=1) if is_json else "\n".join(told(found)))
    if not found["num_completed"]:
        sys.exit(1)


@click.command("proxy")
@click.argument("url")
@click.option("--port", type=click.IntRange(0, 65535), default=8010, show_default=True,
              help="0 takes a free one.")  # fmt: skip
@click.option("--fault", "shares", multiple=True, metavar="NAME=SHARE",
              help="429, 429_silent, 500, 529, hang, cut, error_event or buffer, and the share of "
              "requests that meet it; repeatable.")  # fmt: skip
@click.option("--retry-after", type=SpanType(), default="1s", show_default=True)
@click.option("--hang", type=SpanType(), default="60s", show_default=True)
@click.option("--after-events", type=click.IntRange(0), default=3, show_default=True,
              help="Of a stream, before it is cut or fails.")  # fmt: skip
@click.option(
    "--jitter", type=SpanType(), default="0s", help="Each piece is late by up to so much."
)
@click.option("--bytes-per-s", type=NumberRange(0, min_open=True), help="A narrow line.")
@click.option("--seed", type=int, default=0, show_default=True)
def proxy(url: str, port: int, shares: tuple[str, ...], **given: Any) -> None:
    """Stand before a server on 127.0.0.1 and fail as providers do; the same for the same seed."""
    from longpole_engine.load.proxy import Faults, Proxy

    faults = Faults(
        shares=dict(map(_share, shares)),
        seed=given["seed"],
        retry_after_s=given["retry_after"],
        hang_s=given["hang"],
        after_events=given["after_events"],
        jitter_s=given["jitter"],
        bytes_per_s=given["bytes_per_s"],
    )
    made = Proxy(url, faults)

    async def serve() -> None:
        server = await made.serve(port=port)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        click.echo(f"proxy ready {address} to {url}", err=True)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
        server.close()

    try:
        asyncio.run(serve())
    except OSError as error:
        raise UsageError(f"port {port} is taken: choose another with --port") from error
    for name, number in sorted(made.num_by_fault.items()):
        click.echo(f"{name}: {number}", err=True)


def _share(text: str) -> tuple[Fault, float]:
    from longpole_engine.load.proxy import Fault

    name, _, share = text.partition("=")
    try:
        return Fault(name), float(share)
    except ValueError:
        names = ", ".join(Fault)
        raise UsageError(f"--fault '{text}' is not NAME=SHARE with NAME of {names}") from None


def _plan(given: dict[str, Any]) -> Plan:
    from longpole_engine.load.client import Behaviour
    from longpole_engine.load.prompts import LANGUAGES, recorded
    from longpole_engine.load.run import Plan
    from longpole_engine.load.served import UNKNOWN

    shares = {
        Behaviour.SLOW: given["slow"],
        Behaviour.CANCELS: given["cancel"],
        Behaviour.DISCONNECTS: given["disconnect"],
    }
    if sum(shares.values()) > 1:
        raise UsageError("--slow, --cancel and --disconnect are shares: together at most 1")
    if given["language"] not in LANGUAGES:
        raise UsageError(f"--language is one of {', '.join(LANGUAGES)}, not '{given['language']}'")
    return Plan(
        model=given["model"] or UNKNOWN,
        input_tokens=given["input_tokens"],
        output_tokens=given["output_tokens"],
        seed=given["seed"],
        duration_s=given["duration"],
        max_requests=given["requests"],
        max_failures=given["max_failures"],
        max_in_flight=given["max_in_flight"],
        timeout_s=given["timeout"],
        warm_up_s=given["warm_up"],
        think_s=given["think"],
        turns=given["turns"],
        language=given["language"],
        prompts=recorded(given["prompts"]) if given["prompts"] else (),
        shares=shares,
        limits={
            Behaviour.SLOW: given["slow_pause"],
            Behaviour.CANCELS: given["cancel_after"],
        },
    )


def _arrivals(text: str, given: dict[str, Any]) -> Iterable[Session] | Closed:
    from longpole_engine.load import replay
    from longpole_engine.load.arrivals import parse, recorded

    if text.startswith(("http://", "https://")):
        since_ns = time.time_ns() - round(given["since"] * 1e9)
        key = os.environ.get("LONGPOLE_COLLECTOR_API_KEY")
        found = replay.sessions(text, key, since_ns, given["route"], given["speed"])
        if not any(turn.blocks for session in found for turn in session.turns):
            click.echo("no call has prefix hashes ([sdk] prefix_hashes): none is shared", err=True)
        return found
    if Path(text).suffix.lower() in (".csv", ".jsonl", ".json", ".parquet"):
        return recorded(Path(text), given["speed"])
    planned = parse(text, given["seed"])
    if given["duration"] is None and given["requests"] is None:
        raise UsageError(f"'{text}' has no end: say --duration or --requests")
    return planned


def _check_generates_none() -> None:
    """Refuse what is of generated prompts, where they are given."""
    source = click.get_current_context().get_parameter_source
    for name in ("input_tokens", "language", "turns"):
        if source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} does not go with --prompts")


def _check_alone(given: dict[str, Any]) -> None:
    """Refuse what two targets need, where there is one."""
    for name in ("against_release", "against_model", "blocks", "db", "target", "margin"):
        if given[name] is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --against")


def _against(
    where: tuple[str, str],
    plan: Plan,
    text: str,
    given: dict[str, Any],
    is_command: bool,
    is_json: bool,
) -> int:
    from longpole_engine.load.against import NUM_BLOCKS
    from longpole_engine.load.against_command import Against, play
    from longpole_engine.load.progress import Progress

    chosen = {"blocks": NUM_BLOCKS, "db": Path(".longpole"), "target": "e2e_ms"}
    given = given | {name: given[name] or value for name, value in chosen.items()}
    first = _arrivals(text, given)  # what cannot be read is told before anything is started

    def arrivals(pair: int) -> Iterable[Session] | Closed:
        return (
            first
            if isinstance(first, list)
            else _arrivals(text, given | {"seed": plan.seed + pair})
        )

    asked = Against(where, is_command, plan, text, arrivals, given)
    _allow_many_files()
    return play(asked, is_json, Progress(plan.max_requests, plan.duration_s))


async def _run(plan: Plan, planned: Iterable[Session] | Closed, target: Asker, tracer: Any) -> Run:
    from longpole_engine.load.progress import Progress
    from longpole_engine.load.run import Run

    last_s = planned[-1].due_s if isinstance(planned, list) else None
    progress = Progress(plan.max_requests, plan.duration_s or last_s)
    waker = alarm()
    run = Run(plan, target, tracer, progress, waker.until if waker else None)
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # a second one ends the process at once
        click.echo("stopping: what has come is told; Ctrl-C again ends at once", err=True)
        run.stop()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        await run(planned)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        progress.clear()
        if waker is not None:
            waker.close()
    return run


def alarm() -> Alarm | None:
    """What wakes on time; ``None`` where the system has no such thing."""
    from longpole_engine.load.alarm import Alarm

    try:
        return Alarm()
    except OSError:
        return None


def _allow_many_files() -> None:
    """As many connections as the system lets this process have; often it starts with 1,024."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop for connections, where there is one."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
