"""Processes that import late, exit in the middle of a stream, or fork: every call is one span."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import more_clients
import pytest
import stainless_clients
from calling_process import MAKERS
from fake_bedrock import FakeBedrock
from otlp_sink import Collector

from longpole.vocab import keys

SCRIPT = Path(__file__).parent / "calling_process.py"


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with (
        stainless_clients.serving() as some,
        more_clients.serving() as others,
        FakeBedrock.serving() as bedrock,
    ):
        found = {**some, **others, "litellm": some["openai"], "bedrock": bedrock}
        yield {name: server.base_url for name, server in found.items()}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector.serving() as made:
        yield made


def run(name: str, url: str, way: str, collector: Collector) -> str:
    """What the process said, when it has ended well."""
    environ = {
        **os.environ,
        "LONGPOLE_SDK_ENDPOINT": collector.url,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would fetch prices
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), name, url, way],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
    assert "longpole" not in done.stderr
    return done.stdout


def states(collector: Collector) -> list[str]:
    """State of each span it got, in order; of a whole answer ``whole``."""
    found: list[str] = []
    for span in collector.spans():
        said = {item.key: item.value.string_value for item in span.attributes}
        found.append(said.get(keys.STREAM_STATE, "whole"))
    return sorted(found)


@pytest.mark.parametrize("name", MAKERS)
def test_instrument_imports_nothing_and_measures_what_is_imported_later(
    name: str, urls: Any, collector: Collector
) -> None:
    seen = json.loads(run(name, urls[name], "lazy", collector))
    assert seen == {"imported": [], "errors": {}}
    assert states(collector) == ["whole"]


@pytest.mark.parametrize("name", MAKERS)
def test_a_stream_that_is_open_at_exit_is_one_span(
    name: str, urls: Any, collector: Collector
) -> None:
    run(name, urls[name], "exit", collector)
    assert states(collector) == ["abandoned"]


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "bedrock"])
def test_a_stream_that_is_open_when_its_loop_ends_is_one_span(
    name: str, urls: Any, collector: Collector
) -> None:
    run(name, urls[name], "exit-async", collector)
    assert states(collector) in (["abandoned"], ["closed_early"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "litellm"])  # has threads
def test_after_a_fork_each_process_sends_its_own_spans(
    name: str, urls: Any, collector: Collector
) -> None:
    run(name, urls[name], "fork", collector)
    assert states(collector) == ["abandoned", "whole"]
