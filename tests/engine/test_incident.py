"""Incidents: a balancer, when things are well again, and one on real engines."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import openai
import pytest
from click.testing import CliRunner

from longpole.call import Kind, StreamState, Usage
from longpole.cli import main
from longpole.errors import UsageError
from longpole_engine.load import incident
from longpole_engine.load.arrivals import Turn
from longpole_engine.load.balancer import Balancer
from longpole_engine.load.client import Answer, Behaviour, Failure
from longpole_engine.load.incident import INCIDENTS, Setup, arrivals, find, phase
from longpole_engine.load.recovery import Calm, calm, recovered
from longpole_engine.load.run import Sent

MS = 1_000_000
GONE = "http://127.0.0.1:1"


def address(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_servers_take_turns_and_one_that_is_down_is_passed_over(
    serve: Callable[..., Any],
) -> None:
    first, second = serve(), serve()
    balancer = Balancer()
    for url in (first.url, GONE, second.url):
        balancer.add(url)
    server = await balancer.serve()
    async with openai.AsyncOpenAI(base_url=f"{address(server)}/v1", api_key="k") as client:
        for _ in range(4):
            stream = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": "once"}],
                max_tokens=3,
                stream=True,
            )
            assert [chunk async for chunk in stream][-1].choices[0].finish_reason
        assert balancer.num_by_url == {first.url: 2, GONE: 0, second.url: 2}
        assert balancer.num_refused >= 1
        balancer.remove(first.url)
        assert (await client.models.list()).data
    assert balancer.num_by_url[second.url] == 3
    server.close()


async def raw(url: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    found = await reader.read(200)
    writer.close()
    return found


async def test_nobody_to_ask_is_503_and_one_that_goes_before_it_answers_502() -> None:
    async def went(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    balancer = Balancer()
    server = await balancer.serve()
    assert b" 503 " in await raw(address(server))
    other = await asyncio.start_server(went, "127.0.0.1", 0)
    balancer.add(address(other))
    assert b" 502 " in await raw(address(server))
    with pytest.raises(UsageError, match="no http address"):
        balancer.add("https://api.example.com")
    server.close()
    other.close()


def saying(
    answer: bytes,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A server's side of one request."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    return say


async def test_requests_at_once_each_find_the_server_that_lives() -> None:
    fine = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    balancer = Balancer()
    server, other = await balancer.serve(), await asyncio.start_server(fine, "127.0.0.1", 0)
    balancer.add(GONE)
    balancer.add(address(other))
    found = await asyncio.gather(*(raw(address(server)) for _ in range(16)))
    assert all(b" 200 " in each for each in found)
    assert balancer.num_by_url == {GONE: 0, address(other): 16}
    server.close()
    other.close()


async def test_an_answer_that_breaks_off_breaks_off() -> None:
    cut = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    balancer = Balancer()
    server, other = await balancer.serve(), await asyncio.start_server(cut, "127.0.0.1", 0)
    balancer.add(address(other))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address(server)[17:]))
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    found = await reader.read()
    assert b"half" in found
    assert not found.endswith(b"0\r\n\r\n")
    for each in (writer, server, other):
        each.close()


def sent(*ttft_ms: float | None) -> list[Sent]:
    """A request a second, its time to the first token; ``None`` fails."""
    found = []
    for number, took in enumerate(ttft_ms):
        due_ns = number * 1_000 * MS
        answer = Answer(due_ns)
        if took is None:
            answer.failure = Failure.CUT
            answer.call.end(due_ns + MS, StreamState.ERROR)
        else:
            answer.call.event(Kind.TEXT, due_ns + round(took * MS))
            answer.call.use(Usage(10, 5, None, 1))
            answer.call.end(due_ns + round(took * MS), StreamState.COMPLETED)
        found.append(Sent(number, due_ns, Turn(), Behaviour.READS, False, answer))
    return found


@pytest.mark.parametrize(
    ("took", "back_s"),
    [
        ([10] * 20, 0),  # nothing bad
        ([90] + [10] * 19, 0),  # one late answer is no incident
        ([90] * 6 + [10] * 20, 6),
        ([10, 10, None, *([10] * 20)], 3),
        ([10] * 20 + [None], None),
        ([90] * 20, None),
        ([90, 90], None),
    ],
)
def test_things_are_well_again_after_the_last_bad_one(
    took: Sequence[float | None], back_s: int | None
) -> None:
    found = recovered(sent(*took), 0, Calm(10.0, 10.0))
    assert found == (None if back_s is None else back_s * 1_000 * MS)
    assert recovered([], 0, Calm(10.0, 10.0)) is None
    assert calm(sent(None)) is None
    assert calm(sent(10, 20, None, 30)) == (20.0, 20.0)
    assert recovered(sent(1), 0, None) is None


def test_a_phase_tells_failures_and_what_the_cache_held() -> None:
    found = phase(sent(10, None, 30))
    assert (found["num_due"], found["num_completed"], found["failures"]) == (3, 2, {"cut": 1})
    assert found["cached_share"] == 0.5
    assert found["ttft_ms"]["max"] == 30
    assert phase([])["cached_share"] is None


def test_the_same_seed_asks_the_same() -> None:
    def first(seed: int) -> list[Any]:
        return list(islice(arrivals(Setup(seed=seed, prefixes=2)), 40))

    assert first(1) == first(1) != first(2)
    prefixes = {session.turns[0].blocks[:-1] for session in first(1)}
    assert len(prefixes) == 2
    assert len({session.turns[0].blocks[-1] for session in first(1)}) == 40


class Light:
    """In an engine's place: a server that answers at once."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.url, self.model, self.start_s = "", str(settings["model"]), 0.0

    async def start(self) -> "Light":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = address(self._server)
        return self

    async def stop(self) -> None:
        self._server.close()

    async def kill(self) -> None:
        self._server.close()

    @staticmethod
    async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        usage = {"prompt_tokens": 8, "completion_tokens": 1}
        events = ({"choices": [{"delta": {"content": "x"}}]}, {"choices": [], "usage": usage})
        body = b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in events)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()
        writer.close()


NUM_ASKED = {"cache_loss": 2, "deploy": 4, "scale_up": 2, "replica_loss": 2, "recovery": 3}


@pytest.mark.parametrize("name", INCIDENTS)
async def test_each_incident_does_what_it_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident, "Replica", Light)
    setup = Setup(model="light", rate=60.0, duration_s=0.8, input_tokens=8)
    found = await incident.run(find(name), setup)
    is_killed = name in ("replica_loss", "recovery")
    if not is_killed:  # who was in mid answer there has none
        assert found["num_failed"] == 0
    parts = {part["name"]: part for part in found["phases"]}
    assert sum(part["num_due"] for part in parts.values()) == found["num_due"] > 0
    assert parts["before"]["to_s"] == parts["during"]["from_s"] == found["at_s"] >= 0.4
    assert len(found["requests_by_replica"]) == NUM_ASKED[name]
    if name != "recovery":  # there the next one may come before anyone asks the dead one
        assert (found["num_connections_refused"] > 0) is is_killed


def test_a_replica_is_lost_under_load_on_real_engines() -> None:
    words = ("engine", "incident", "replica_loss", "--model", "tiny", "--json")
    more = ("--rate", "8", "--duration", "3s", "--input-tokens", "64", "--output-tokens", "4")
    done = CliRunner().invoke(main, [*words, *more])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["schema"] == "longpole.incident/1"
    assert found["phases"][0]["num_completed"] > 0
    assert found["phases"][0]["cached_share"] > 0
    assert [each["what"] for each in found["events"]] == ["replica 1 is killed"]
    assert found["num_connections_refused"] > 0


def test_incidents_are_listed_and_an_unknown_one_is_exit_2() -> None:
    listed = CliRunner().invoke(main, ["engine", "incident"]).stdout
    assert [line.split()[0] for line in listed.splitlines()] == list(INCIDENTS)
    assert CliRunner().invoke(main, ["engine", "incident", "fire"]).exit_code == 2
    with pytest.raises(UsageError, match="cache_loss"):
        find("fire")
