"""Faults of providers, on demand, against the real engine and the official client."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import openai
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import UsageError
from longpole_engine.load.client import Answer, Client, Target
from longpole_engine.load.proxy import Fault, Faults, Proxy

BODY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "once upon a time"}],
    "max_tokens": 8,
    "stream": True,
    "stream_options": {"include_usage": True},
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def engine_url(serve: Callable[..., Any]) -> str:
    return str(serve().url)


@pytest.fixture
async def through(engine_url: str) -> AsyncIterator[Any]:
    """Starts proxies in front of the engine; gives their addresses."""
    servers: list[asyncio.Server] = []

    async def start(**faults: Any) -> tuple[str, Proxy]:
        proxy = Proxy(engine_url, Faults(**faults))
        server = await proxy.serve()
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy

    yield start
    for server in servers:
        server.close()


async def ask(url: str, timeout_s: float = 30.0) -> Answer:
    client = Client(Target.at(url, None))
    answer = await client.ask(json.dumps(BODY).encode(), None, timeout_s)
    client.close()
    return answer


async def test_without_a_fault_an_answer_passes_as_it_is(through: Any) -> None:
    url, proxy = await through()
    answer = await ask(url)
    assert answer.is_whole
    assert answer.call.usage.output_tokens == 8
    assert proxy.num_by_fault == {"none": 1}


FAULTS: list[tuple[Fault, str | None, int | None]] = [
    (Fault.RATE_LIMIT, "status", 429),
    (Fault.SILENT_RATE_LIMIT, "status", 429),
    (Fault.ERROR, "status", 500),
    (Fault.OVERLOADED, "status", 529),
    (Fault.HANG, "cut", None),
    (Fault.CUT, "cut", 200),
    (Fault.ERROR_EVENT, "error_event", 200),
]


@pytest.mark.parametrize(("fault", "failure", "status"), FAULTS)
async def test_each_fault_is_what_its_name_says(
    through: Any, fault: Fault, failure: str, status: int | None
) -> None:
    url, _ = await through(shares={fault: 1.0}, hang_s=0.1)
    answer = await ask(url)
    assert (answer.failure, answer.status) == (failure, status)
    assert not answer.is_whole


async def test_a_hanging_answer_runs_into_the_client_s_timeout(through: Any) -> None:
    url, _ = await through(shares={Fault.HANG: 1.0})
    assert (await ask(url, 0.2)).failure == "timeout"


async def test_a_buffering_gateway_gives_all_at_once(through: Any) -> None:
    url, _ = await through(shares={Fault.BUFFER: 1.0})
    answer = await ask(url)
    assert answer.is_whole
    assert len(set(answer.call.content_ns)) == 1 < len(answer.call.content_ns)


async def test_a_narrow_line_takes_as_long_as_its_bytes(through: Any) -> None:
    url, _ = await through(bytes_per_s=5_000.0)
    answer = await ask(url)
    assert answer.is_whole
    assert answer.call.times().e2e_ns > 0.2e9  # some 2 kB


async def test_retry_after_is_obeyed_by_the_official_client(through: Any) -> None:
    url, proxy = await through(shares={Fault.RATE_LIMIT: 0.5}, retry_after_s=0.05, seed=2)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=5) as client:
        for _ in range(4):
            done = await client.chat.completions.create(
                model="tiny", messages=BODY["messages"], max_tokens=2
            )
            assert done.choices
    assert proxy.num_by_fault["none"] == 4
    assert proxy.num_by_fault["429"] >= 1


async def test_what_asks_for_no_answer_of_a_model_is_left_alone_and_not_counted(
    through: Any,
) -> None:
    url, proxy = await through(shares={Fault.ERROR: 1.0})
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
    assert proxy.num_by_fault == {}
    assert (await ask(url)).status == 500
    assert proxy.num_by_fault == {"500": 1}


async def test_no_server_behind_is_a_502() -> None:
    server = await Proxy("http://127.0.0.1:1", Faults()).serve()
    answer = await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()
    assert answer.status == 502


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_harms_the_same_requests(seed: int) -> None:
    shares = {Fault.CUT: 0.2, Fault.ERROR: 0.1}
    first, again = ([Faults(shares, seed).of(n) for n in range(400)] for _ in range(2))
    assert first == again
    found = Counter(first)
    assert 40 <= found[Fault.CUT] <= 125
    assert 15 <= found[Fault.ERROR] <= 75


@pytest.mark.parametrize("shares", [{Fault.CUT: -0.1}, {Fault.CUT: 0.7, Fault.ERROR: 0.7}])
def test_shares_that_cannot_be_are_refused(shares: dict[Fault, float]) -> None:
    with pytest.raises(UsageError, match="shares"):
        Faults(shares)


def test_only_http_servers_stand_behind() -> None:
    with pytest.raises(UsageError, match="no http address"):
        Proxy("https://api.example.com", Faults())


def test_the_command_serves_until_it_is_stopped(engine_url: str) -> None:
    run = [sys.executable, "-c", "from longpole.cli import main; main()"]
    words = [*run, "engine", "proxy", engine_url, "--port", "0"]
    with subprocess.Popen(
        [*words, "--fault", "500=1"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = line.split()[2]
        assert asyncio.run(ask(url)).status == 500
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "500: 1" in process.stderr.read()


@pytest.mark.parametrize("fault", ["500", "500=2", "oops=0.1", "500=x", "500=nan"])
def test_wrong_faults_are_exit_2(fault: str) -> None:
    done = CliRunner().invoke(main, ["engine", "proxy", "http://127.0.0.1:1", "--fault", fault])
    assert done.exit_code == 2
