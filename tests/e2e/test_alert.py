"""From a fault in an engine to a page that names it, with nobody's help.

An application asks one engine, then two by turns. The second one serves without its prefix cache,
so that its prompts run in full. The collector watches a promise on the time to first token and
tells a webhook.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import openai
import pytest
from tests.alerts.fakes import Got, serving, webhook
from tests.e2e.whatif_app import SYSTEM
from tests.examples.running import Stack

from longpole_dashboard.processes import Child, Group, free_port, longpole_command

APP = Path(__file__).with_name("whatif_app.py")
NUM_BEFORE, NUM = 30, 90
PROMPT_TIMES = 2
TOML = """
[slo.ask-ttft]
metric = "ttft_ms"
threshold = {threshold:.2f}
target = 0.9
period = "30d"
where = "route = 'ask' AND route_version <> 'warm-up'"
owner = "search"
rules = [{{severity = "page", long = "1h", short = "5m", factor = 3}}]

[alerts]
interval_s = 1
allow_hosts = "127.0.0.1"

[alerts.sinks.hook]
kind = "webhook"
url = "{hook}"
"""


class Watched(NamedTuple):
    """What runs: two engines, a collector that watches, and what came to its webhook."""

    stack: Stack
    whole: str
    faulty: str
    got: list[Got]


def first_token_ms(engine: str) -> float:
    """Of a prompt that was asked before."""
    system = {"role": "system", "content": SYSTEM * PROMPT_TIMES}
    messages: Any = [system, {"role": "user", "content": "Hello"}]
    took = []
    with openai.OpenAI(base_url=engine, api_key="none") as client:
        for _ in range(6):
            begun = time.perf_counter()
            stream = client.chat.completions.create(
                model="tiny", messages=messages, max_tokens=2, stream=True
            )
            with stream as answer:
                for chunk in answer:
                    if chunk.choices and chunk.choices[0].delta.content:
                        took.append(1e3 * (time.perf_counter() - begun))
                        break
    return median(took[1:])


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    ports: list[int] = []
    for _ in range(4):
        ports.append(free_port(0, taken=ports))
    http, grpc, whole, faulty = (f"127.0.0.1:{port}" for port in ports)
    env = {
        **os.environ,
        "LONGPOLE_ENGINE_OTLP_ENDPOINT": f"http://{http}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{http}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "PROMPT_TIMES": str(PROMPT_TIMES),
    }
    with ExitStack() as stack:
        hook, got = stack.enter_context(serving(webhook))
        group = stack.enter_context(Group())
        engines = []
        for name, port, words in (
            ("whole", ports[2], ()),
            ("faulty", ports[3], ("--no-prefix-cache",)),
        ):
            serve = ("engine", "serve", "--model", "tiny", "--port", str(port), *words)
            command = longpole_command(*serve)
            engines.append(Child(name, command, log=tmp_path / f"{name}.log", env=env))
            group.start(engines[-1])
        for child, address in zip(engines, (whole, faulty), strict=True):
            child.wait_ready(f"http://{address}/health")
        urls = [f"http://{address}/v1" for address in (whole, faulty)]
        usual, slow = map(first_token_ms, urls)
        text = TOML.format(threshold=math.sqrt(usual * slow), hook=hook)
        (tmp_path / "longpole.toml").write_text(text)
        words = ("collect", "--db", str(tmp_path / "db"), "--http", http, "--grpc", grpc)
        command = ["env", "-C", str(tmp_path), *longpole_command(*words)]
        collector = Child("collector", command, log=tmp_path / "collector.log", env=env)
        group.start(collector).wait_ready(f"http://{http}/readyz")
        running = Stack(group, tmp_path, f"http://{http}", "", env)
        yield Watched(running, *urls, got)


def test_an_engine_that_lost_its_cache_leads_to_a_page_that_names_it(watched: Watched) -> None:
    kinds = (f"whole,0,{watched.whole}", f"faulty,0,{watched.faulty},{NUM_BEFORE}")
    command = [sys.executable, str(APP), str(NUM), *kinds]
    subprocess.run(command, env=watched.stack.env, check=True, timeout=300)
    deadline = time.monotonic() + 60
    while not watched.got:
        assert time.monotonic() < deadline, watched.stack.group.children[-1].tail()
        time.sleep(0.1)
    (page,) = (each.json for each in watched.got)
    assert (page["status"], page["severity"]) == ("firing", "page")
    assert page["slo"]["id"] == "ask-ttft"
    cause = page["cause"]
    assert cause["stage"] == "prefill", page
    assert cause["slices"][0]["where"] == {"route_version": "faulty"}, page
    assert cause["unknown"] == ""
    assert "prefill" in page["summary"]
    assert "route_version=faulty" in page["summary"]
    told = [parse_qs(urlsplit(url).query)["trace"][0] for url in page["links"]["traces"]]
    ids = ", ".join(f"'{each}'" for each in told)
    rows = watched.stack.rows(f"SELECT route_version FROM traces WHERE trace_id IN ({ids})", 3)
    assert {row["route_version"] for row in rows} == {"faulty"}
