"""A collector killed in the middle of a workload loses nothing it acknowledged."""

import asyncio
import os
from pathlib import Path

from openai import AsyncOpenAI

import longpole
from longpole_collector.stores import open_reader
from longpole_dashboard.processes import Child, Group, free_port, longpole_command


async def _calls(base_url: str, num_calls: int) -> None:
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        longpole.wrap(client)

        async def one(index: int) -> None:
            async with longpole.workflow("kill", route="kill.test") as run:
                stream = await client.chat.completions.create(
                    model="tiny",
                    messages=[{"role": "user", "content": f"question {index}"}],
                    max_tokens=4,
                    stream=True,
                )
                async for _ in stream:
                    pass
                run.accept()

        for start in range(0, num_calls, 8):
            await asyncio.gather(*(one(index) for index in range(start, start + 8)))


def test_a_killed_collector_loses_no_acknowledged_span(tmp_path: Path) -> None:
    ports: list[int] = []
    for _ in range(3):
        ports.append(free_port(0, taken=ports))
    http, grpc, engine = (f"127.0.0.1:{port}" for port in ports)
    db = tmp_path / "db"
    command = longpole_command("collect", "--db", str(db), "--http", http, "--grpc", grpc)
    env = {**os.environ, "LONGPOLE_ENGINE_OTLP_ENDPOINT": f"http://{http}"}
    with Group() as group:
        first = group.start(Child("collector", command, log=tmp_path / "collector.log"))
        serving = group.start(
            Child(
                "engine",
                longpole_command("engine", "serve", "--model", "tiny", "--port", str(ports[2])),
                log=tmp_path / "engine.log",
                env=env,
            )
        )
        first.wait_ready(f"http://{http}/readyz")
        serving.wait_ready(f"http://{engine}/health")
        longpole.init(service="kill-test", endpoint=f"http://{http}")
        asyncio.run(_calls(f"http://{engine}/v1", 64))
        assert longpole.flush(10)
        acknowledged = longpole.stats().num_sent
        first.kill()
        asyncio.run(_calls(f"http://{engine}/v1", 8))
        again = Child("collector", command, log=tmp_path / "again.log")
        group.start(again).wait_ready(f"http://{http}/readyz")
        assert again.stop() == 0
    reader = open_reader(db=db)
    rows = reader.sql(
        "SELECT count(*) AS num, count(DISTINCT span_id) AS num_ids FROM spans"
        " WHERE service = 'kill-test'"
    ).to_pylist()
    reader.close()
    assert acknowledged >= 128
    assert rows[0]["num"] >= acknowledged
    assert rows[0]["num"] == rows[0]["num_ids"]
