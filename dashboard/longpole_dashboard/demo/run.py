"""``longpole demo``: start everything, play the workload, plant the fault, say what was found."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from openai import AsyncOpenAI
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import longpole
from longpole.errors import LongpoleError, UsageError
from longpole_collector.stores import open_reader
from longpole_dashboard.demo import workload
from longpole_dashboard.demo.agent import QUESTION_ROUTE, ShopAssistant
from longpole_dashboard.demo.report import Outcome, Played, look
from longpole_dashboard.processes import Child, Group, free_port, longpole_command

LOAD_SHARE = 0.45
"""Share of the engine's time that requests without a cached prefix may take: well below
saturation, so that the planted fault shows as what it is and not as a queue."""
NUM_WARM_UP = 4
MIN_REQUESTS = 44
"""Fewer carry no finding; on a slow machine the replay takes longer than asked."""
ANSWER_TIMEOUT_S = 120.0
ENGINE_TIMEOUT_S = 180.0
PLANTED_VERSION = "v2"
OURS = ".longpole-demo"
"""The file that marks a data folder as a demo's, so that the next run may empty it."""


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    minutes: float
    as_json: bool
    exit_after: bool
    db: Path
    keep: bool
    port: int
    model: str
    seed: int


@dataclass(frozen=True)
class Addresses:
    """Where the parts of the demo listen, all on loopback."""

    engine: str
    collector: str
    dashboard: str


def run(options: Options) -> int:
    """Run the demo; returns the exit code: 0 when the planted fault was found, else 1."""
    say = Console(stderr=True, highlight=False)
    _prepare(options)
    outcome: Outcome | None = None
    with Group() as group:
        try:
            say.print("longpole demo · on this machine's CPU, nothing leaves it")
            addresses = _start(group, options, say)
            played = asyncio.run(_play(options, addresses, say))
            longpole.flush(10)
            reader = open_reader(url=addresses.collector)
            outcome = look(reader, played)
            reader.close()
            if options.as_json:
                document = {**outcome.document(), "dashboard": addresses.dashboard}
                print(json.dumps(document), flush=True)  # noqa: T201 - the command's product
            else:
                print(f"\n{outcome.text()}", flush=True)  # noqa: T201 - the command's product
            if not outcome.is_found:
                say.print("The planted fault was not found in this run.")
            if not options.exit_after:
                say.print(f"Dashboard {addresses.dashboard} · Ctrl-C stops")
                raise LongpoleError(group.wait().obituary())
        except KeyboardInterrupt:
            say.print("stopping")
    if outcome is None:
        return 130
    return 0 if outcome.is_found else 1


def _prepare(options: Options) -> None:
    """An empty data folder, unless earlier runs are to be kept."""
    if options.db.exists() and not options.keep:
        if any(options.db.iterdir()) and not (options.db / OURS).exists():
            raise UsageError(
                f"{options.db} holds data that is not a demo's: choose another --db, or --keep it"
            )
        shutil.rmtree(options.db)
    options.db.mkdir(parents=True, exist_ok=True, mode=0o700)
    (options.db / OURS).touch()


def _start(group: Group, options: Options, say: Console) -> Addresses:
    """Start engine, collector and dashboard at once, and wait until all answer."""
    ports: list[int] = []
    for preferred in (8000, 4318, 4317, options.port):
        ports.append(free_port(preferred, taken=ports))
    engine, http, grpc, page = (f"127.0.0.1:{port}" for port in ports)
    at = Addresses(f"http://{engine}", f"http://{http}", f"http://{page}")
    serve = ("engine", "serve", "--port", str(ports[0]), "--model", options.model)
    collect = ("collect", "--db", str(options.db), "--http", http, "--grpc", grpc)
    show = (sys.executable, "-m", "longpole_dashboard.server", "--port", str(ports[3]))
    env = {**os.environ, "LONGPOLE_ENGINE_OTLP_ENDPOINT": at.collector}
    logs = options.db / "logs"
    serving = Child("engine", longpole_command(*serve), log=logs / "engine.log", env=env)
    collecting = Child("collector", longpole_command(*collect), log=logs / "collector.log")
    showing = Child("dashboard", [*show, "--url", at.collector], log=logs / "dashboard.log")
    for child in (collecting, serving, showing):  # stopped the other way round: spans arrive
        group.start(child)
    took_s = collecting.wait_ready(f"{at.collector}/readyz")
    say.print(f"[1/4] collector  {grpc}, {http}   data {options.db} ({took_s:.1f} s)", markup=False)
    took_s = showing.wait_ready(f"{at.dashboard}/_stcore/health")
    say.print(f"[2/4] dashboard  {at.dashboard} ({took_s:.1f} s)", markup=False)
    took_s = serving.wait_ready(f"{at.engine}/health", ENGINE_TIMEOUT_S)
    say.print(f"[3/4] engine     {engine}   model {options.model} ({took_s:.1f} s)", markup=False)
    return at


async def _play(options: Options, addresses: Addresses, say: Console) -> Played:
    """Warm up, fit the arrivals to this machine, send them, plant the fault half-way."""
    longpole.init(service="shop-assistant", endpoint=addresses.collector)
    start_ns = time.time_ns()
    async with AsyncOpenAI(
        base_url=f"{addresses.engine}/v1", api_key="none", timeout=ANSWER_TIMEOUT_S
    ) as client:
        assistant = ShopAssistant(client, options.model, options.seed)
        miss_s = await _warm_up(assistant)
        rate_per_s = LOAD_SHARE / miss_s
        num_requests = max(MIN_REQUESTS, round(options.minutes * 60 * rate_per_s))
        plan = workload.plan(num_requests, rate_per_s, options.seed)
        say.print(
            f"[4/4] replaying {num_requests} requests of a public chat trace at "
            f"{plan.speed:.2g}x its speed, {plan.duration_s:.0f} s",
            markup=False,
        )
        replay_start_ns = time.time_ns()
        num_failed = await _send(assistant, plan, say)
    return Played(
        start_ns=start_ns,
        replay_start_ns=replay_start_ns,
        num_warm_up=NUM_WARM_UP,
        num_workflows=NUM_WARM_UP + len(plan.arrivals),
        num_failed=num_failed,
        replay_speed=plan.speed,
        planted_version=PLANTED_VERSION,
    )


async def _warm_up(assistant: ShopAssistant) -> float:
    """Send a few requests one after the other; seconds of the first, which finds no prefix."""
    begin = time.monotonic()
    await assistant.answer_question(workload.MEAN_OUTPUT_TOKENS)
    first_s = time.monotonic() - begin
    for _ in range(NUM_WARM_UP - 1):
        await assistant.answer_question(workload.MEAN_OUTPUT_TOKENS)
    return first_s


async def _send(assistant: ShopAssistant, plan: workload.Workload, say: Console) -> int:
    """Send every request when it is due, whatever became of earlier ones; returns failures."""
    columns = (TextColumn("     "), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: list[asyncio.Task[None]] = []
    begin = time.monotonic()
    with Progress(*columns, console=say, disable=not say.is_terminal) as progress:
        bar = progress.add_task("", total=len(plan.arrivals))
        for index, arrival in enumerate(plan.arrivals):
            await asyncio.sleep(max(0.0, begin + arrival.due_s - time.monotonic()))
            if index == len(plan.arrivals) // 2:
                assistant.prompt_version = PLANTED_VERSION
                say.print(f"      {arrival.due_s:.0f} s: {QUESTION_ROUTE} gets a prompt edit")
            task = asyncio.create_task(assistant.handle(arrival.output_tokens))
            task.add_done_callback(lambda _: progress.advance(bar))
            tasks.append(task)
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures[:1]:
        say.print(f"      {len(failures)} requests failed, the first: {failure}", markup=False)
    return len(failures)
