import json
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longpole
from longpole import content, settings
from longpole.testing import Spans
from longpole.vocab import keys

CARD = "4111 1111 1111 1111"
SAID = f"I am jo@example.org, my card is {CARD}"


@pytest.fixture
def captured() -> None:
    settings.put(settings.load(capture_content=True))


def use(**options: Any) -> None:
    settings.put(settings.load(capture_content=True, **options))


def test_content_is_off_by_default_and_costs_nothing() -> None:
    def never() -> Any:
        raise AssertionError
        yield

    assert not content.is_captured()
    assert content.input_messages(never()) is None
    assert content.output_messages(never()) is None
    assert content.system_instructions(never()) is None
    assert content.value({"a": 1}) is None


@pytest.mark.usefixtures("captured")
def test_messages_have_the_conventions_shape() -> None:
    messages: Any = [
        ("user", [content.text("weather?"), content.media("image", "image/png")]),
        (
            "assistant",
            [content.reasoning("hm"), content.tool_call("get", '{"city": "Paris"}', "1")],
        ),
        ("tool", [content.tool_response("rainy", "1")]),
    ]
    assert json.loads(content.input_messages(messages) or "") == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "weather?"},
                {"type": "blob", "modality": "image", "mime_type": "image/png"},
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "1", "name": "get", "arguments": {"city": "Paris"}},
            ],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "1", "response": "rainy"}],
        },
    ]
    answer = content.output_messages([("assistant", [content.text("rain")], "stop")])
    assert json.loads(answer or "") == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "rain"}],
            "finish_reason": "stop",
        }
    ]
    system = content.system_instructions([content.text("Be terse.")])
    assert json.loads(system or "") == [{"type": "text", "content": "Be terse."}]
    assert content.input_messages([]) is None


@pytest.mark.usefixtures("captured")
def test_texts_are_redacted_wherever_they_stand() -> None:
    arguments = {"to": "jo@example.org", "jo@example.org": [4111111111111111, 7, True, None]}
    found = content.input_messages(
        [("user", [content.text(SAID)]), ("assistant", [content.tool_call("pay", arguments)])]
    )
    assert found is not None
    assert "example.org" not in found
    assert "4111" not in found
    user, assistant = json.loads(found)
    assert user["parts"][0]["content"] == "I am [mail], my card is [card]"
    assert assistant["parts"][0]["arguments"] == {
        "to": "[mail]",
        "[mail]": ["[card]", 7, True, None],
    }


def test_own_rules_come_after_ours_and_the_hook_last() -> None:
    seen = []

    def hook(text: str) -> str:
        seen.append(text)
        return text.replace("Ann", "[name]")

    use(redact_pattern=r"ORD-\d{8}", redact=hook)
    found = content.value(["Ann ordered ORD-12345678 as jo@example.org", 5])
    assert json.loads(found or "") == ["[name] ordered [redacted] as [mail]", 5]
    assert seen == ["Ann ordered [redacted] as [mail]"]


@pytest.mark.parametrize("hook", [lambda text: 1 / 0, lambda text: None])
def test_a_hook_that_fails_drops_the_text_and_is_counted(hook: Any) -> None:
    use(redact=hook)
    found = content.input_messages([("user", [content.text("a secret")])])
    assert json.loads(found or "")[0] == {
        "role": "user",
        "parts": [{"type": "text", "content": "[redaction failed]"}],
    }
    assert longpole.stats().num_internal_errors == {"redact": 1}


# --- size ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("captured")
def test_a_long_text_is_cut_and_says_so() -> None:
    long = "word " * 10_000
    found = content.input_messages([("user", [content.text(long)])])
    assert found is not None
    assert len(found) <= content.MAX_CHARS
    said = json.loads(found)[0]["parts"][0]["content"]
    assert said.startswith("word word")
    assert said.endswith("[cut: 50000 characters in all]")
    assert len(said) > content.MAX_CHARS * 0.8


@pytest.mark.usefixtures("captured")
def test_of_a_long_conversation_the_newest_stays() -> None:
    messages = [("user", [content.text(f"{number} " + "x" * 1000)]) for number in range(200)]
    found = json.loads(content.input_messages(messages) or "")
    mark, text = found[0]["parts"]
    assert mark == {"type": "cut", "num_left_out": 200 - len(found)}
    assert text["type"] == "text"
    assert found[-1]["parts"][0]["content"].startswith("199 ")
    assert len(found) > 10


@pytest.mark.usefixtures("captured")
def test_a_secret_at_the_cut_is_not_sent_in_half() -> None:
    for shift in range(0, 40, 3):
        text = "x" * (content.MAX_CHARS - 80 - shift) + f" {SAID} " + "y" * 30_000
        found = content.value(text)
        assert found is not None
        assert "jo@" not in found
        assert "4111" not in found


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=40,
)


@given(TREES)
def test_whatever_comes_it_is_json_that_fits(found: Any) -> None:
    use()
    said = content.value(found)
    if found is not None and found != []:
        assert said is not None
        json.loads(said)
        said.encode()
        assert len(said) <= content.MAX_CHARS


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize(
    "found",
    [
        {str(number): number for number in range(100_000)},
        list(range(100_000)),
        ["\x00" * 50_000, '"\\' * 50_000],
        {"k" * 50_000: {"k" * 50_000: 1}},
        "\ud800 half a pair",
    ],
)
def test_what_is_huge_or_odd_still_fits(found: Any) -> None:
    for said in (content.value(found), content.input_messages([("user", [{"x": found}])] * 50)):
        assert said is not None
        json.loads(said)
        said.encode()
        assert len(said) <= content.MAX_CHARS


@pytest.mark.usefixtures("captured")
def test_what_contains_itself_comes_to_an_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "[cut: too deep]" in (content.value(loop) or "")


@pytest.mark.usefixtures("captured")
def test_objects_are_named_or_dumped_and_generators_left_alone() -> None:
    class Order(pydantic.BaseModel):
        mail: str

    numbers = iter([1, 2])
    said = content.value([Order(mail="jo@example.org"), object(), numbers, b"bytes"])
    assert json.loads(said or "") == [{"mail": "[mail]"}, "[object]", "[list_iterator]", "[bytes]"]
    assert next(numbers) == 1


# --- tools --------------------------------------------------------------------------------------


class Shop:
    @longpole.tool
    def order(self, mail: str, *rest: int, num: int = 1) -> dict[str, str]:
        return {"sent to": mail}


async def test_a_tools_arguments_and_result_are_kept_only_when_opted_in(spans: Spans) -> None:
    @longpole.tool
    async def fetch(city: str) -> str:
        return f"rain in {city}"

    assert await fetch("Paris") == "rain in Paris"
    use()
    assert await fetch("Paris") == "rain in Paris"
    Shop().order("jo@example.org", 1, 2, num=2)
    with longpole.tool("by hand") as step:
        step.arguments({"a": 1})
        step.result(None)
    off, on, method, by_hand = (dict(span.attributes or {}) for span in spans)
    assert keys.TOOL_ARGUMENTS not in off
    assert keys.TOOL_RESULT not in off
    assert on[keys.TOOL_ARGUMENTS] == '{"city":"Paris"}'
    assert on[keys.TOOL_RESULT] == '"rain in Paris"'
    assert json.loads(method[keys.TOOL_ARGUMENTS]) == {"mail": "[mail]", "args": [1, 2], "num": 2}
    assert method[keys.TOOL_RESULT] == '{"sent to":"[mail]"}'
    assert by_hand[keys.TOOL_ARGUMENTS] == '{"a":1}'
    assert keys.TOOL_RESULT not in by_hand
