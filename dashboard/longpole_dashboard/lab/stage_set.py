"""What a run needs: collector, engines, neighbours, doors and the application, started together."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import longpole
from longpole_collector.stores import open_reader
from longpole_collector.stores.base import Reader
from longpole_dashboard.lab.app import Agent, Name, Salt
from longpole_dashboard.lab.door import Balancer
from longpole_dashboard.lab.recipe import Side
from longpole_dashboard.lab.replicas import Rack, Replica
from longpole_dashboard.processes import Child, Group, free_port, longpole_command
from longpole_engine.load.client import Client, Target

_READY_S: Final = 60.0
_SWITCH_S: Final = 0.001
"""Application, doors and engines share this interpreter: they take turns often."""
_NEIGHBOUR_TIMEOUT_S: Final = 60.0


class StageSet:
    """The collector and the engines of a lab, for as many runs as wanted; a context manager.

    Args:
        db: data folder of the collector.
        model: name of the engines' model.
    """

    def __init__(self, db: Path, model: str) -> None:
        self.db, self.model = db, model
        self._group = Group()
        http, grpc = free_port(0), free_port(0)
        self.url = f"http://127.0.0.1:{http}"
        command = longpole_command(
            *("collect", "--db", str(db), "--http", f"127.0.0.1:{http}"),
            *("--grpc", f"127.0.0.1:{grpc}"),
        )
        self._collector = Child("collector", command, log=db / "logs" / "collector.log")
        self._rack = Rack(self.url)
        self._sleepers: list[Replica] = []
        self.say: Callable[[str], None] = lambda line: None
        """Is told what goes on in a run."""
        self.reader: Reader

    def __enter__(self) -> Self:
        self._group.__enter__()
        try:
            self._group.start(self._collector).wait_ready(f"{self.url}/readyz", _READY_S)
        except BaseException:
            self._group.__exit__(None, None, None)
            raise
        sys.setswitchinterval(_SWITCH_S)
        longpole.init(
            service="lab", endpoint=self.url, export_delay_s=0.2, hash_key="lab", queue_size=50_000
        )
        self.reader = open_reader(url=self.url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rack.close()
        for replica in self._sleepers:
            replica.close()
        self.reader.close()
        self._group.__exit__(kind, error, trace)

    def flush(self) -> None:
        """Send every span there is."""
        for replica in [*self._rack.all(), *self._sleepers]:
            replica.flush()
        longpole.flush(10)

    def replicas(self, side: Side) -> list[Replica]:
        """The engines of a side, warm.

        Raises:
            LongpoleError: one cannot start.
        """
        wanted = side.replicas
        found = []
        for number in range(wanted.num_engines):
            settings, is_hosted = wanted.settings, wanted.is_hosted
            found.append(self._rack.take(self.model, settings, number, is_hosted=is_hosted))
        for replica in found:
            replica.wait()
        return found

    @asynccontextmanager
    async def agent(self, side: Side, seed: int, name: Name, salt: Salt) -> AsyncIterator[Agent]:
        """The application of a side, before its door, with neighbours at work in the engines."""
        ports = [replica.port for replica in self.replicas(side)]
        sleeper = _Sleeper(self, side) if side.door.idle_s else None
        door = Balancer(ports, side.door, seed, sleeper.wake if sleeper else None)
        server = await door.serve()
        port: int = server.sockets[0].getsockname()[1]
        agent = Agent(f"http://127.0.0.1:{port}", self.model, side.app, name, salt)
        others = [
            asyncio.create_task(self._neighbour(ports[-1], side, number))
            for number in range(side.replicas.neighbour)
        ]
        try:
            yield agent
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await agent.close()
            server.close()

    def start(self, settings: Mapping[str, Any]) -> Replica:
        """A further engine, cold."""
        replica = Replica(self.model, settings, self.url)
        self._sleepers.append(replica)
        return replica

    async def _neighbour(self, port: int, side: Side, number: int) -> None:
        """Another customer: asks again as soon as it has an answer."""
        client = Client(Target.at(f"http://127.0.0.1:{port}", None))
        num_words, num_tokens = side.replicas.neighbour_tokens
        turn = 0
        try:
            while True:
                turn += 1
                words = " ".join(f"{number}.{turn}.{each}" for each in range(num_words // 3))
                body = {
                    "model": self.model,
                    "messages": [{"role": "user", "content": words}],
                    "max_tokens": num_tokens,
                    "temperature": 0,
                    "ignore_eos": True,
                    "stream": True,
                }
                await client.ask(json.dumps(body).encode(), None, _NEIGHBOUR_TIMEOUT_S)
        finally:
            client.close()


class _Sleeper:
    """An engine that is stopped when nobody asks, and started by the next request."""

    def __init__(self, stage: StageSet, side: Side) -> None:
        self._stage, self._side = stage, side
        self._replica: Replica | None = None
        self._last_s = 0.0

    async def wake(self) -> int:
        """The port of a warm engine; a new one if the last was idle for too long."""
        is_late = time.monotonic() - self._last_s > self._side.door.idle_s
        if self._replica is None or is_late:
            await asyncio.sleep(self._side.door.place_s)
            self._replica = self._stage.start(self._side.replicas.settings)
            await asyncio.to_thread(self._replica.wait)
        self._last_s = time.monotonic()
        return self._replica.port


def idle(side: Side) -> Side:
    """The side without its waits and faults: the model's call alone."""
    return side.but(
        retrieval_s=0.0,
        tools_s=(),
        is_serial=False,
        slow_tools=0.0,
        approval_s=0.0,
        read_pause_s=0.0,
        faults={},
        delay_s=0.0,
        odd_delay_s=0.0,
        idle_s=0.0,
        neighbour=0,
        turns=1,
    )
