"""The page of the SDK says what is so: its examples run, its names and settings exist."""

import re
from pathlib import Path
from typing import Any

import pytest

import longpole
from longpole import content, settings
from longpole.testing import Spans
from longpole.vocab import keys

PAGE = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_its_examples_run(client: Any, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    charged: list[str] = []

    def charge(order: str) -> None:
        charged.append(order)
        if len(charged) < 2:
            raise TimeoutError

    def init(service: str, **options: Any) -> None:  # the real one sets up the whole process
        settings.put(settings.load(service=service, **options))

    monkeypatch.setattr(longpole, "init", init)
    names: dict[str, Any] = {
        "client": client,
        "search": lambda text: f"about {text}",
        "charge": charge,
        "draft": lambda name: None,
    }
    assert len(BLOCKS) == 6
    for block in BLOCKS:
        exec(compile(block, "sdk.md", "exec"), names)
    assert charged == ["order-17"] * 2
    assert longpole.stats().num_internal_errors == {}
    assert content.value("Ann wants ORD-12345678") == '"[name] wants [redacted]"'
    found = {span.name: dict(span.attributes or {}) for span in spans}
    assert found["invoke_workflow answer"][keys.OUTCOME] == "accepted"
    assert found["execute_tool charge"][keys.TOOL_ATTEMPT] == 2
    assert len(found["invoke_workflow write"][keys.BRANCH_USED]) == 1
    assert found["cache_lookup answers"][keys.APP_CACHE_HIT] is True
    assert found["speculate next page"][keys.SPECULATION_STATE] == "used"
    assert found["chat plain"][keys.ROUTE_CHOSEN] == "plain"
    assert found["chat plain"]["longpole.prompt.segment.tools.set_hash"]


def test_its_keys_and_settings_exist() -> None:
    known = {value for name, value in vars(keys).items() if name.isupper()}
    named = set(re.findall(r"`((?:longpole|gen_ai)(?:\.[a-z_]+){2,})`", PAGE))
    assert len(named) > 8
    assert named <= known
    steps = set(
        re.findall(r"^\| (`.*?) \|", PAGE.split("| step |")[1].split("\n\n")[0], re.MULTILINE)
    )
    for name in re.findall(r"`(\w+)`", " ".join(steps)):
        assert name in longpole.__all__
    for name in ("prefix_hashes", "hash_key", "capture_content", "redact_pattern"):
        assert name in PAGE
        assert name in settings.DEFAULTS
    assert f"{content.MAX_CHARS:,}" in PAGE
