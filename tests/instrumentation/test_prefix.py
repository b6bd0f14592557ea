import hmac
import json
import subprocess
import sys
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longpole
from longpole import prefix, prompts, settings
from longpole.testing import Spans
from longpole.vocab import keys

KEY = b"a tenant's key"
KEYED = prefix.Keyed(KEY)
TOOLS = [{"name": "a", "type": "function"}, {"name": "b", "type": "function"}]
MESSAGES: Any = [{"role": "user", "content": "x"}]


def reference_chain(data: bytes, size: int, start: bytes) -> list[bytes]:
    """The method's definition, block by block: h_i = HMAC(key, h_(i-1) || block_i), 64 bits."""
    found, last = [], hmac.digest(KEY, start, "sha256")[:8]
    for begin in range(0, len(data), size):
        last = hmac.digest(KEY, last + data[begin : begin + size], "sha256")[:8]
        found.append(last)
    return found


def cut(hashes: str) -> list[str]:
    return [hashes[i : i + 16] for i in range(0, len(hashes), 16)]


@given(st.binary(max_size=200), st.binary(max_size=500))
def test_it_is_hmac_sha256(key: bytes, message: bytes) -> None:
    assert prefix.Keyed(key)(message) == hmac.digest(key, message, "sha256")


@given(st.binary(max_size=30_000), st.text(max_size=8))
def test_the_chain_is_its_definition(data: bytes, model: str) -> None:
    found = prefix.chain(KEYED, data, model)
    every = reference_chain(data, 256, b"longpole.prefix/1" + model.encode())
    kept = [h.hex() for n, h in enumerate(every, 1) if n <= 32 or n % 8 == 0]
    assert cut(found.hashes) == kept
    assert found.num_blocks == len(every)
    assert found.unit == "256 bytes"


@given(st.text(min_size=1, max_size=3000), st.integers(0, 2999))
def test_chains_agree_up_to_the_first_difference(text: str, at: int) -> None:
    data = prefix.joined([text])
    at %= len(data)
    other = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    one, two = (cut(prefix.chain(KEYED, each).hashes) for each in (data, other))
    same = [a == b for a, b in zip(one, two, strict=True)]
    assert same == [number < at // 256 for number in range(len(one))]


def test_blocks_of_tokens_are_cut_by_the_callers_tokenizer() -> None:
    def tokenize(text: str) -> list[int]:
        return [ord(char) for char in text]

    found = prefix.chain(KEYED, b"x" * 129, "m", tokenize)
    assert (found.num_blocks, found.unit) == (3, "64 tokens")
    assert cut(found.hashes)[0] == cut(prefix.chain(KEYED, b"x" * 64, "m", tokenize).hashes)[0]


def test_a_huge_prompt_has_a_bounded_chain_and_its_true_number_of_blocks() -> None:
    found = prefix.chain(KEYED, b"x" * (8 << 20))
    assert found.num_blocks == (8 << 20) / 256
    assert len(found.hashes) == 16 * prefix.MAX_HASHES


@pytest.fixture
def keyed_settings() -> None:
    settings.put(settings.load(hash_key=KEY.decode()))


def facts_of(segments: Any, **kwargs: Any) -> dict[str, Any]:
    with longpole.prompt(segments=segments, **kwargs):
        from longpole.context import call_facts

        return dict(call_facts())


@pytest.mark.usefixtures("keyed_settings")
def test_another_order_of_tools_is_told_from_other_tools() -> None:
    def tools(items: Any) -> tuple[str, str]:
        found = facts_of({"tools": items})
        return found["longpole.prompt.segment.tools.hash"], found[
            "longpole.prompt.segment.tools.set_hash"
        ]

    ordered, of_set = tools(TOOLS)
    swapped, of_swapped = tools(TOOLS[::-1])
    assert swapped != ordered
    assert of_swapped == of_set
    assert tools(TOOLS[:1])[1] != of_set
    assert "longpole.prompt.segment.tools.set_hash" not in facts_of({"tools": "[]"})
    assert "longpole.prompt.segment.system.set_hash" not in facts_of({"system": ["a", "b"]})


@pytest.mark.usefixtures("keyed_settings")
def test_a_prompt_that_grows_keeps_its_chain() -> None:
    system = "You are terse. " * 100
    first = facts_of({"system": system, "messages": ["hi"]})
    later = facts_of({"system": system, "messages": ["hi", "hello", "more"]})
    num_whole = len(system) // 256
    one, two = cut(first[keys.PROMPT_CHAIN]), cut(later[keys.PROMPT_CHAIN])
    assert one[:num_whole] == two[:num_whole]
    assert one[num_whole] != two[num_whole]
    assert first[keys.PROMPT_KEY_ID] == later[keys.PROMPT_KEY_ID] == KEYED.key_id
    assert first[keys.PROMPT_BLOCK] == "256 bytes"
    assert facts_of({"system": system}, model="m")[keys.PROMPT_CHAIN] != first[keys.PROMPT_CHAIN]


def test_without_a_key_processes_do_not_compare_and_with_one_they_do() -> None:
    code = (
        "import json, longpole\n"
        "from longpole.context import call_facts\n"
        "with longpole.prompt(segments={'a': 'x'}):\n"
        "    print(json.dumps(dict(call_facts())))\n"
    )

    def run(**env: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
        )
        return json.loads(done.stdout)

    one, two = run(), run()
    assert one[keys.PROMPT_KEY_ID] != two[keys.PROMPT_KEY_ID]
    assert one[keys.PROMPT_CHAIN] != two[keys.PROMPT_CHAIN]
    assert run(LONGPOLE_PREFIX_KEY="k") == run(LONGPOLE_PREFIX_KEY="k")


@pytest.mark.usefixtures("keyed_settings")
def test_no_text_leaves(client: Any, spans: Spans) -> None:
    segments = {"system": "a secret rule", "messages": [{"role": "user", "content": "a secret"}]}
    with longpole.prompt(segments=segments):
        client.chat.completions.create(model="plain", messages=MESSAGES)
    sent = spans[0].to_json()
    assert keys.PROMPT_CHAIN in sent
    assert "secret" not in sent
    assert KEY.decode() not in sent
    assert KEY.decode() not in repr(settings.current())


# --- the facts of a wrapped client's request ----------------------------------------------------


def request() -> Any:
    class Message(pydantic.BaseModel):
        role: str
        content: str | None = None

    return {"tools": TOOLS, "messages": [{"role": "user", "content": "x"}, Message(role="tool")]}


def test_requests_are_hashed_only_when_asked_for() -> None:
    assert prompts.prompt_facts(request()) == {}
    settings.put(settings.load(prefix_hashes=True, hash_key=KEY.decode()))
    found = prompts.prompt_facts({**request(), "system": None, "schema": {"a": 1}}, model="m")
    assert found[keys.PROMPT_KEY_ID] == KEYED.key_id
    assert found["longpole.prompt.segment.messages.length"] > 0
    assert found["longpole.prompt.segment.schema.length"] == len('{"a":1}')
    assert "longpole.prompt.segment.system.hash" not in found
    stable = facts_of({"tools": TOOLS})
    assert prompts.prompt_facts(request())[keys.PREFIX_HASH] == stable[keys.PREFIX_HASH]
    with longpole.prompt(segments={"system": "x"}):
        assert prompts.prompt_facts(request()) == {}  # the application's own words count


@pytest.mark.parametrize("messages", [[object()], iter(["a"]), {"abcde"}])
def test_a_request_that_cannot_be_read_is_counted_and_left_as_it_is(messages: Any) -> None:
    settings.put(settings.load(prefix_hashes=True))
    assert prompts.prompt_facts({"messages": messages}) == {}
    assert longpole.stats().num_internal_errors == {"prompt": 1}
    assert len(list(messages)) in (1, 5)


# --- routing ------------------------------------------------------------------------------------


def test_a_routing_decision_can_be_made_again(client: Any, spans: Spans) -> None:
    with (
        longpole.route_decision(
            "plain", version="7", candidates=["plain", "big"], tier="free", num_docs=3
        ),
        longpole.tool("t"),
    ):
        client.chat.completions.create(model="plain", messages=MESSAGES)
    call, tool = (dict(span.attributes or {}) for span in spans)
    assert call[keys.ROUTE_CHOSEN] == "plain"
    assert call[keys.ROUTE_POLICY_VERSION] == "7"
    assert call[keys.ROUTE_CANDIDATES] == ("plain", "big")
    assert (call["longpole.route.input.tier"], call["longpole.route.input.num_docs"]) == ("free", 3)
    assert keys.ROUTE_CHOSEN not in tool
