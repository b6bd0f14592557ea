"""The generator against real servers: on time whatever comes back, and true about it."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from longpole.cli import main
from longpole_engine.load.arrivals import Session, Turn
from longpole_engine.load.client import Behaviour, Client, Target
from longpole_engine.load.run import Plan, Run
from longpole_engine.load.summary import quantiles, summary

CHUNK = {"choices": [{"delta": {"content": "word "}}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}}
GOOD = (CHUNK, CHUNK, CHUNK, USAGE)
Serve = Callable[..., str]
STALL_S = 0.6


class Server:
    """Answers each request by a plan: pieces of SSE, pauses, or raw bytes."""

    def __init__(self) -> None:
        self.plan: Callable[[int], Sequence[Any]] = lambda number: GOOD
        self.models: list[str] = ["only"]
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.num_connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /v1/models "):
                    listed = json.dumps({"data": [{"id": name} for name in self.models]}).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(listed))
                    writer.write(listed)
                    continue
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                self.bodies.append(json.loads(await reader.readexactly(length)))
                self.heads.append(head)
                if not await self._answer(writer, self.plan(len(self.bodies) - 1)):
                    break
        writer.close()

    @staticmethod
    async def _answer(writer: asyncio.StreamWriter, pieces: Sequence[Any]) -> bool:
        if pieces and isinstance(pieces[0], bytes):
            writer.write(pieces[0])
            return False
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
                continue
            if piece == "cut":
                return False
            line = f"data: {json.dumps(piece)}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))
            await writer.drain()
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return True


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Server, str]]:
    server = Server()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        loop, stop = asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            async with await asyncio.start_server(server.handle, sock=listener):
                await stop.wait()
                for writer in server.writers:
                    writer.transport.abort()
                others = asyncio.all_tasks() - {asyncio.current_task()}
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        yield server, address
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def server(running: tuple[Server, str]) -> Server:
    found = running[0]
    found.plan = lambda number: GOOD
    found.models = ["only"]
    found.bodies.clear()
    found.heads.clear()
    found.num_connections = 0
    return found


@pytest.fixture
def url(running: tuple[Server, str], server: Server) -> str:
    return running[1]


async def sent(url: str, arrivals: Sequence[Session], **plan: Any) -> Run:
    run = Run(Plan("m", **plan), Client(Target.at(url, "k")))
    await run(arrivals)
    return run


def every(gap_s: float, number: int) -> list[Session]:
    return [Session(gap_s * index) for index in range(number)]


async def test_what_is_asked_for_is_what_is_sent(server: Server, url: str) -> None:
    run = await sent(url, [Session(0, (Turn(0, 9, 4),)), Session(0, (Turn(0, 0, 0),))])
    assert sorted(len(b["messages"][0]["content"].split()) for b in server.bodies) == [1, 9]
    assert sorted(body["max_tokens"] for body in server.bodies) == [1, 4]
    assert b"authorization: bearer k" in server.heads[0].lower()
    told = summary(run, "file")
    assert (told["num_due"], told["num_completed"], told["failures"]) == (2, 2, {})
    assert (told["input_tokens"], told["output_tokens"]) == (24, 6)
    assert told["cached_input_tokens"] is None


async def test_connections_are_kept_and_cold_requests_stand_apart(server: Server, url: str) -> None:
    turns = (Turn(), Turn(0.0), Turn(0.0))
    told = summary(await sent(url, [Session(0, turns)]), "file")
    assert server.num_connections == 1
    assert (told["cold"]["num"], told["warm"]["num"]) == (1, 2)


async def test_one_slow_answer_holds_up_no_other_request(server: Server, url: str) -> None:
    server.plan = lambda number: (STALL_S, *GOOD) if number == 0 else GOOD
    run = await sent(url, every(0.02, 20))
    e2e_s = sorted((each.answer.call.times().e2e_ns + each.lag_ns) / 1e9 for each in run.sent)
    assert e2e_s[-1] >= STALL_S
    assert len([each for each in e2e_s if each >= STALL_S]) == 1
    assert len(run.sent) == 20


async def test_latency_counts_from_when_a_request_was_due() -> None:
    """A target that takes nothing for a while: what was due then is late by the time it waited."""
    run = Run(Plan("m"), _Stalls())
    await run(every(0.05, 8))
    late_ms = [each.lag_ns / 1e6 for each in sorted(run.sent, key=lambda each: each.due_ns)]
    assert late_ms[0] >= 0
    told = summary(run, "constant:20")
    longest = told["warm"]["latency"]["e2e_ms"]["max"]
    # due 0.05 s apart while the sender was held up for 0.4 s: the first of them waited longest
    assert longest >= 300
    assert told["warm"]["service"]["e2e_ms"]["max"] <= longest
    assert sum(each > 0 for each in late_ms) >= 6
    assert told["is_behind"]


class _Stalls:
    """Holds up the sending process itself, once."""

    def __init__(self) -> None:
        self._has_stalled = False

    async def ask(self, *_: Any, **__: Any) -> Any:
        from longpole.call import StreamState
        from longpole_engine.load.client import Answer, now_ns

        answer = Answer(now_ns())
        if not self._has_stalled:
            self._has_stalled = True
            time.sleep(0.4)  # noqa: ASYNC251 - that is the point
        answer.call.end(now_ns(), StreamState.COMPLETED)
        return answer

    def close(self) -> None:
        pass


FAILURES: dict[str, tuple[Sequence[Any], str]] = {
    "a status": ((b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nslow",), "status_429"),
    "a cut stream": ((CHUNK, "cut"), "cut"),
    "an error event": ((CHUNK, {"error": {"message": "overloaded"}}), "error_event"),
    "no HTTP": ((b"220 mail here\r\n\r\n",), "broken"),
    "no JSON": (("just text",), "broken"),
    "no answer": ((5.0,), "timeout"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_is_counted_by_its_kind(server: Server, url: str, name: str) -> None:
    pieces, kind = FAILURES[name]
    server.plan = lambda number: pieces if number == 0 else GOOD
    told = summary(await sent(url, every(0.05, 3), timeout_s=0.5), "file")
    assert told["failures"] == {kind: 1}
    assert told["num_completed"] == 2


async def test_what_came_in_time_is_no_timeout_where_this_process_looked_late(
    server: Server, url: str
) -> None:
    server.plan = lambda number: (0.1, *GOOD)

    async def busy() -> None:
        await asyncio.sleep(0.05)
        time.sleep(0.5)  # noqa: ASYNC251 - that is the point

    run, _ = await asyncio.gather(sent(url, every(0, 1), timeout_s=0.3), busy())
    told = summary(run, "file")
    assert (told["num_completed"], told["failures"]) == (1, {})


async def test_a_target_that_is_down_is_no_crash() -> None:
    told = summary(await sent("http://127.0.0.1:1", every(0.01, 3)), "file")
    assert told["failures"] == {"connect": 3}
    assert told["warm"]["latency"]["ttft_ms"]["max"] is None


async def test_an_answer_that_is_not_streamed_is_read(server: Server, url: str) -> None:
    body = json.dumps(
        {"choices": [{"message": {"content": "x"}}], "usage": USAGE["usage"]}
    ).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    server.plan = lambda number: (head % len(body) + body,)
    (one,) = (await sent(url, every(0, 1))).sent
    assert one.answer.is_whole
    assert not one.answer.call.is_streamed
    assert one.answer.call.usage.output_tokens == 3


@pytest.mark.parametrize(
    ("behaviour", "limit", "num_chunks"),
    [(Behaviour.CANCELS, 2, 2), (Behaviour.DISCONNECTS, 0, 0), (Behaviour.SLOW, 0.05, 3)],
)
async def test_clients_do_what_they_are_told(
    server: Server, url: str, behaviour: Behaviour, limit: float, num_chunks: int
) -> None:
    server.plan = lambda number: (CHUNK, 0.05, CHUNK, 0.05, CHUNK, 0.05, USAGE)
    plan = {"shares": {behaviour: 1.0}, "limits": {behaviour: limit}}
    (one,) = (await sent(url, every(0, 1), **plan)).sent
    assert one.answer.failure is None
    assert len(one.answer.call.content_ns) == num_chunks
    assert one.answer.is_whole == (behaviour is Behaviour.SLOW)
    assert one.answer.call.state == ("completed" if one.answer.is_whole else "closed_early")


async def test_what_cannot_be_sent_is_told(server: Server, url: str) -> None:
    server.plan = lambda number: (0.3, *GOOD)
    run = await sent(url, every(0.005, 10), max_in_flight=2)
    told = summary(run, "constant:200")
    assert (told["num_due"], told["num_sent"], told["num_not_sent"]) == (10, 2, 8)
    assert told["is_behind"]


async def test_failures_stop_a_run_and_what_came_is_kept(server: Server, url: str) -> None:
    server.plan = lambda number: GOOD if number < 2 else FAILURES["a status"][0]
    run = await sent(url, every(0.02, 500), max_failures=3)
    told = summary(run, "constant:50")
    assert told["is_partial"]
    assert told["num_completed"] == 2
    assert 3 <= told["failures"]["status_429"] < 400


async def test_a_closed_loop_never_has_more_in_flight_than_clients(
    server: Server, url: str
) -> None:
    from longpole_engine.load.arrivals import Closed

    run = Run(Plan("m", max_requests=9), Client(Target.at(url, None)))
    await run(Closed(3))
    told = summary(run, "closed:3")
    assert told["max_in_flight"] == 3
    assert told["num_completed"] == 9
    assert (told["loop"], told["asked_per_s"], told["is_behind"]) == ("closed", None, False)


async def test_turns_of_a_session_share_their_prefix(server: Server, url: str) -> None:
    await sent(url, every(0, 1), turns=3, input_tokens=20)
    texts = [body["messages"][0]["content"].split() for body in server.bodies]
    assert [len(text) for text in texts] == [20, 40, 60]
    assert texts[2][:40] == texts[1]
    assert texts[1][:20] == texts[0]


def test_a_quantile_needs_ten_values_beyond_it() -> None:
    assert quantiles([])["p50"] is None
    assert quantiles([])["max"] is None
    few = quantiles([float(n) for n in range(100)])
    assert (few["p50"], few["p90"], few["p95"]) == (50.0, 90.0, None)


def load(*words: str) -> Result:
    return CliRunner().invoke(main, ["load", *words])


def test_the_command_tells_what_came(url: str) -> None:
    done = load(url, "--arrivals", "constant:50", "--requests", "5", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema"] == "longpole.load/1"
    assert (document["num_due"], document["num_completed"]) == (5, 5)
    text = load(url, "--arrivals", "closed:2", "--requests", "3").stdout
    assert "3 of 3 requests answered in full" in text
    assert "closed loop" in text


def test_the_lines_say_why_requests_failed_and_which_clients_left(server: Server, url: str) -> None:
    error = json.dumps({"error": {"message": "no model 'm':\n\x1b[2J try tiny"}}).encode()
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(error)
    server.plan = lambda number: (head + error,) if number < 2 else GOOD
    words = ("--arrivals", "constant:50", "--requests", "6", "--cancel", "0.5")
    text = load(url, *words).stdout
    assert "failed: status_404  2  (no model 'm': [2J try tiny)" in text
    assert "clients: cancels  " in text
    assert "sent late by at most" in text
    assert "no request was due" in load(url, "--arrivals", "poisson:1", "--duration", "0s").stdout


def test_the_one_model_of_a_server_need_not_be_named(server: Server, url: str) -> None:
    words = ("--arrivals", "constant:50", "--requests", "1")
    assert load(url, *words).exit_code == 0
    server.models = ["first", "second"]
    done = load(url, *words)
    assert done.exit_code == 2
    assert "has 2 models: --model first, second" in done.output
    assert load(f"{url}/v1", *words, "--model", "second").exit_code == 0
    server.models = []
    assert load(url, *words).exit_code == 0
    assert [body["model"] for body in server.bodies] == ["only", "second", "default"]


def test_any_command_is_a_target() -> None:
    script = "import sys; sys.stdout.write(sys.stdin.read())"
    words = f'{sys.executable} -S -c "{script}"'
    done = load("--command", words, "--arrivals", "constant:20", "--requests", "2", "--json")
    assert json.loads(done.stdout)["num_completed"] == 2
    failed = load("--command", "false", "--arrivals", "constant:20", "--requests", "2", "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["failures"] == {"status_1": 2}


def test_ctrl_c_ends_a_run_and_what_came_is_told(server: Server, url: str) -> None:
    run = "from longpole.cli import main; main()"
    words = ["load", url, "--arrivals", "constant:50", "--requests", "100000", "--json"]
    with subprocess.Popen([sys.executable, "-c", run, *words], stdout=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while len(server.bodies) < 5 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        told = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 0
    assert told["is_partial"]
    assert 1 <= told["num_completed"] <= told["num_due"] < 100_000


@pytest.mark.parametrize(
    "words",
    [
        ("--arrivals", "poisson:1"),
        ("http://h", "--command", "x", "--arrivals", "poisson:1"),
        ("http://h", "--arrivals", "poisson:1"),
        ("http://h", "--arrivals", "poisson:0", "--requests", "1"),
        ("ftp://h", "--arrivals", "poisson:1", "--requests", "1"),
        ("http://h:port", "--arrivals", "poisson:1", "--requests", "1"),
        ("http://h", "--arrivals", "a.csv"),
        ("http://h", "--arrivals", "traffic.txt", "--requests", "1"),
        ("http://h", "--arrivals", "poisson:1", "--requests", "1", "--slow", "nan"),
        ("http://h", "--arrivals", "poisson:1", "--requests", "1", "--speed", "nan"),
        ("http://h", "--arrivals", "poisson:1", "--duration", "999999999d"),
        ("http://h", "--arrivals", "poisson:1", "--requests", "1", "--input-tokens", "10000000"),
        ("http://h", "--arrivals", "poisson:1", "--duration", "soon"),
        ("http://h", "--arrivals", "poisson:1", "--requests", "1", "--language", "xx"),
        ("http://h", "--arrivals", "closed:1", "--requests", "1", "--slow", "0.6",
         "--cancel", "0.6"),
        ("--command", "'", "--arrivals", "poisson:1", "--requests", "1"),
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_2(words: tuple[str, ...]) -> None:
    assert load(*words).exit_code == 2
