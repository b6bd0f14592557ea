"""The door sends requests where the recipe says, over real connections."""

import asyncio
import json

import pytest

from longpole_dashboard.lab.door import Balancer
from longpole_dashboard.lab.recipe import Door, Routing
from longpole_engine.load.proxy import Fault


class Upstream:
    """Servers that keep the bodies they get and answer with their number."""

    def __init__(self):
        self.bodies = []

    async def start(self, num):
        servers = [await asyncio.start_server(self.answer(n), "127.0.0.1", 0) for n in range(num)]
        return servers, [server.sockets[0].getsockname()[1] for server in servers]

    def answer(self, number):
        async def connected(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            self.bodies.append((number, json.loads(await reader.readexactly(length))))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
            writer.close()

        return connected


async def asked(port, prompt):
    """The status of one request."""
    body = json.dumps({"messages": [{"role": "system", "content": prompt}]}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    status = int((await reader.readline()).split()[1])
    writer.close()
    await writer.wait_closed()
    return status


async def through(door, prompts, num=3, pauses=None):
    """Which server got which prompt, its body, and the statuses."""
    upstream = Upstream()
    servers, ports = await upstream.start(num)
    front = await Balancer(ports, door, 1).serve()
    port = front.sockets[0].getsockname()[1]
    statuses = []
    for number, prompt in enumerate(prompts):
        await asyncio.sleep((pauses or {}).get(number, 0.0))
        statuses.append(await asked(port, prompt))
    for server in (front, *servers):
        server.close()
    return upstream.bodies, statuses


async def test_round_robin_takes_turns() -> None:
    bodies, statuses = await through(Door(), ["a"] * 6)
    assert statuses == [200] * 6
    assert [number for number, _ in bodies] == [1, 2, 0, 1, 2, 0]


async def test_affinity_keeps_a_beginning_in_one_place() -> None:
    prompts = [f"{name} " * 200 for name in "abcabcabcddd"]
    bodies, _ = await through(Door(routing=Routing.AFFINITY), prompts)
    places = {}
    for (number, body), prompt in zip(bodies, prompts, strict=True):
        assert body["messages"][0]["content"] == prompt
        assert places.setdefault(prompt, number) == number


async def test_home_takes_what_came_before_to_the_last_replica() -> None:
    bodies, _ = await through(Door(routing=Routing.HOME), ["a", "b", "a", "a", "c"])
    assert [number for number, _ in bodies] == [0, 0, 2, 2, 0]


async def test_a_prefix_that_was_not_used_for_its_life_is_another_one() -> None:
    door = Door(prefix_life_s=0.4)
    bodies, _ = await through(door, ["a", "a", "a"], num=1, pauses={2: 0.6})
    first, second, third = (body["cache_salt"] for _, body in bodies)
    assert first == second or first != third  # a slow machine may let it expire twice
    assert second != third


@pytest.mark.parametrize("share", [0.1, 0.25])
async def test_even_faults_are_as_many_as_the_share_says(share) -> None:
    door = Door({Fault.ERROR: share}, is_even=True)
    bodies, statuses = await through(door, ["a"] * 40, num=1)
    assert statuses.count(500) == round(40 * share)
    assert len(bodies) == 40 - round(40 * share)
