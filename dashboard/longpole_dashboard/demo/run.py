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
from longpole_collector.stores.base import Reader
from longpole_dashboard.demo import workload
from longpole_dashboard.demo.agent import QUESTION_ROUTE, ShopAssistant
from longpole_dashboard.demo.report import Outcome, Played, look, objective_ms
from longpole_dashboard.processes import Child, Group, free_port, longpole_command

LOAD_SHARE = 0.45
"""Share of the engine's time that requests without a cached prefix may take: well below
saturation, so that the planted fault shows as what it is and not as a queue."""
NUM_WARM_UP = 6
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


def run(options: Options) -> int:
    """Run the demo; returns the exit code: 0 when the planted fault was found, else 1."""
    say = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    _prepare(options)
    outcome: Outcome | None = None
    with Group() as group:
        try:
            say.print("longpole demo · on this machine's CPU, nothing leaves it")
            parts = _Parts(group, options)
            parts.start(say)
            reader = open_reader(url=parts.collector)
            played = asyncio.run(_play(parts, reader, say))
            longpole.flush(10)
            outcome = look(reader, played)
            reader.close()
            if options.as_json:
                document = {**outcome.document(), "dashboard": parts.dashboard}
                print(json.dumps(document), flush=True)  # noqa: T201 - the command's product
            else:
                print(f"\n{outcome.text(options.db)}", flush=True)  # noqa: T201 - the command's product
            if not outcome.is_found:
                say.print("The planted fault was not found in this run.")
            if not options.exit_after:
                say.print(f"Dashboard {parts.dashboard} · Ctrl-C stops")
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


class _Parts:
    """The servers of the demo, all on loopback, as children of one group."""

    def __init__(self, group: Group, options: Options) -> None:
        self._group = group
        self.options = options
        ports: list[int] = []
        for preferred in (8000, 4318, 4317, options.port):
            ports.append(free_port(preferred, taken=ports))
        self._ports = ports
        self._grpc = f"127.0.0.1:{ports[2]}"
        self.engine = f"http://127.0.0.1:{ports[0]}"
        self.collector = f"http://127.0.0.1:{ports[1]}"
        self.dashboard = f"http://127.0.0.1:{ports[3]}"

    def start(self, say: Console) -> None:
        """Start the collector and the engine at once; wait until both answer."""
        http = self.collector.removeprefix("http://")
        collect = ("collect", "--db", str(self.options.db), "--http", http, "--grpc", self._grpc)
        serve = ("engine", "serve", "--port", str(self._ports[0]), "--model", self.options.model)
        collector = self._child("collector", longpole_command(*collect))
        otlp = {"LONGPOLE_ENGINE_OTLP_ENDPOINT": self.collector}
        engine = self._child("engine", longpole_command(*serve), otlp)
        took_s = collector.wait_ready(f"{self.collector}/readyz")
        say.print(
            f"[1/4] collector  {http}, {self._grpc}   data {self.options.db} ({took_s:.1f} s)"
        )
        took_s = engine.wait_ready(f"{self.engine}/health", ENGINE_TIMEOUT_S)
        say.print(f"[2/4] engine     {self.engine}   {self.options.model} ({took_s:.1f} s)")

    def show(self, objective_ms: float, say: Console) -> None:
        """Start the dashboard with this objective; wait until it answers."""
        serve = [sys.executable, "-m", "longpole_dashboard.server", "--url", self.collector]
        objective = {"LONGPOLE_DASHBOARD_TTFT_OBJECTIVE_MS": f"{objective_ms:.0f}"}
        child = self._child("dashboard", [*serve, "--port", str(self._ports[3])], objective)
        took_s = child.wait_ready(f"{self.dashboard}/_stcore/health")
        say.print(f"[3/4] dashboard  {self.dashboard} ({took_s:.1f} s)")

    def _child(self, name: str, command: list[str], env: dict[str, str] | None = None) -> Child:
        log = self.options.db / "logs" / f"{name}.log"
        return self._group.start(Child(name, command, log=log, env={**os.environ, **(env or {})}))


async def _play(parts: _Parts, reader: Reader, say: Console) -> Played:
    """Warm up, fit the arrivals to this machine, send them, plant the fault half-way."""
    options = parts.options
    longpole.init(service="shop-assistant", endpoint=parts.collector)
    start_ns = time.time_ns()
    async with AsyncOpenAI(
        base_url=f"{parts.engine}/v1", api_key="none", timeout=ANSWER_TIMEOUT_S
    ) as client:
        assistant = ShopAssistant(client, options.model, options.seed)
        await client.models.list()  # opens the connection, so that the warm-up times the engine
        rate_per_s = LOAD_SHARE / await _warm_up(assistant)
        longpole.flush(10)
        objective = round(objective_ms(reader, start_ns, NUM_WARM_UP))
        parts.show(objective, say)
        num_requests = max(MIN_REQUESTS, round(options.minutes * 60 * rate_per_s))
        plan = workload.plan(num_requests, rate_per_s, options.seed)
        say.print(
            f"[4/4] replaying {num_requests} requests of a public chat trace at "
            f"{plan.speed:.2g}x its speed, {plan.duration_s:.0f} s"
        )
        num_failed = await _send(assistant, plan, say)
    return Played(
        start_ns=start_ns,
        objective_ms=objective,
        num_workflows=NUM_WARM_UP + num_requests,
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
        say.print(f"      {len(failures)} requests failed, the first: {failure}")
    return len(failures)
