"""What steps say arrives: through OTLP and the collector's reader into the view of spans."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

import longpole
from longpole import settings
from longpole.testing import Spans
from longpole.vocab import keys
from longpole_collector import open_reader

MESSAGES: Any = [{"role": "user", "content": "x"}]


def stored(spans: Spans, folder: Path) -> dict[str, dict[str, str]]:
    file = folder / "spans.pb"
    file.write_bytes(encode_spans(list(spans)).SerializeToString())
    reader = open_reader(files=[file])
    rows = reader.sql("SELECT name, attributes FROM spans").to_pylist()
    reader.close()
    return {row["name"]: dict(row["attributes"]) for row in rows}


def run_everything(client: Any) -> None:
    with longpole.workflow("w", deadline_s=30) as run:
        run.acknowledged()
        with (
            longpole.prompt(segments={"tools": ["a", "b"], "system": "x" * 20_000}),
            longpole.route_decision("plain", version="7", candidates=["plain", "big"], tier="free"),
        ):
            client.chat.completions.create(model="plain", messages=MESSAGES)
        with longpole.tool("first", idempotency_key="k") as first:
            first.error_class("retryable")
        with longpole.tool("again", deadline_s=9, retry_of=first) as again:
            again.arguments({"city": "Paris"})
        with longpole.hedge("h") as group, group.branch("b"):
            pass
        with longpole.cache_lookup("c", "semantic") as lookup:
            lookup.hit(0.9, is_stale=True, saved_s=1.5, source_version="v")
        with longpole.speculate("g", ttl_s=5) as guess:
            pass
        guess.used()
        run.used("b")


EXPECTED = {
    "invoke_workflow w": {
        keys.DEADLINE,
        keys.DEADLINE_MISSED,
        keys.TIME_TO_ACKNOWLEDGED,
        keys.BRANCH_USED,
    },
    "chat plain": {
        keys.PROMPT_CHAIN,
        keys.PROMPT_NUM_BLOCKS,
        keys.PROMPT_BLOCK,
        keys.PROMPT_KEY_ID,
        "longpole.prompt.segment.tools.hash",
        "longpole.prompt.segment.tools.set_hash",
        "longpole.prompt.segment.tools.length",
        keys.ROUTE_CHOSEN,
        keys.ROUTE_POLICY_VERSION,
        keys.ROUTE_CANDIDATES,
        "longpole.route.input.tier",
        keys.DEADLINE_REMAINING,
    },
    "execute_tool first": {keys.TOOL_HAS_IDEMPOTENCY_KEY, keys.TOOL_ERROR_CLASS},
    "execute_tool again": {keys.TOOL_ATTEMPT, keys.TOOL_RETRY_OF, keys.DEADLINE},
    "hedge h": {keys.HEDGE_WINNER},
    "branch b": {keys.BRANCH_NAME, keys.BRANCH_STATE},
    "cache_lookup c": {
        keys.APP_CACHE_KIND,
        keys.APP_CACHE_HIT,
        keys.APP_CACHE_STALE,
        keys.APP_CACHE_SIMILARITY,
        keys.APP_CACHE_SAVED,
        keys.APP_CACHE_SOURCE_VERSION,
    },
    "speculate g": {keys.SPECULATION_STATE, keys.SPECULATION_TTL, keys.SPECULATION_AGE},
}


def test_every_fact_of_a_step_is_stored_as_it_was_sent(
    client: Any, spans: Spans, tmp_path: Path
) -> None:
    run_everything(client)
    found = stored(spans, tmp_path)
    sent = {span.name: dict(span.attributes or {}) for span in spans}
    for name, wanted in EXPECTED.items():
        assert wanted <= set(found[name]), name
        for key in wanted:
            value = sent[name][key]
            kept = found[name][key]
            assert kept == value if isinstance(value, str) else json.loads(kept) == _plain(value)


def test_captured_content_is_dropped_by_the_collector_unless_its_policy_keeps_it(
    client: Any, spans: Spans, tmp_path: Path
) -> None:
    settings.put(settings.load(capture_content=True))
    run_everything(client)
    sent = {span.name: dict(span.attributes or {}) for span in spans}
    assert sent["execute_tool again"][keys.TOOL_ARGUMENTS] == '{"city":"Paris"}'
    found = stored(spans, tmp_path)["execute_tool again"]
    assert keys.TOOL_ARGUMENTS not in found
    assert found[f"{keys.TOOL_ARGUMENTS}.length"] == "16"


@pytest.mark.parametrize(
    "key", [keys.INPUT_MESSAGES, keys.OUTPUT_MESSAGES, keys.SYSTEM_INSTRUCTIONS, keys.TOOL_RESULT]
)
def test_messages_are_dropped_in_the_same_way(key: str, spans: Spans, tmp_path: Path) -> None:
    with longpole.validation("v") as step:
        step.set(key, '[{"role":"user"}]')
    found = stored(spans, tmp_path)["validation v"]
    assert key not in found
    assert f"{key}.hash" in found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
