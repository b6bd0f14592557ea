"""One reader of messages for all providers' forms: JSON, libraries' objects, mixed content."""

import json
from typing import Any

import pytest
from google.genai import types
from mistralai.client.models import UserMessage
from openai.types.chat import ChatCompletionMessage

from longpole import content, settings
from longpole.loose import loosened
from longpole.providers import _messages


@pytest.fixture(autouse=True)
def _captured(_fresh: None) -> None:
    settings.put(settings.load(capture_content=True, prefix_hashes=True))


def sent(messages: Any, **more: Any) -> Any:
    found = content.input_messages(_messages.chat(messages, **more).messages)
    return None if found is None else json.loads(found)


def one(message: Any) -> Any:
    (found,) = sent([message])
    return found["role"], found["parts"]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "content": said}


CALL = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": 1}}
ANSWER = {"type": "tool_call_response", "id": "c1", "response": "found"}
IMAGE = {"type": "blob", "modality": "image", "mime_type": None}
PNG = {**IMAGE, "mime_type": "image/png"}
FUNCTION = {"name": "search", "arguments": '{"q": 1}'}


@pytest.mark.parametrize(
    ("message", "role", "parts"),
    [
        ("hi", "user", [text("hi")]),
        ({"role": "user", "content": "hi"}, "user", [text("hi")]),
        (
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,secret"}},
                ],
            },
            "user",
            [text("what?"), IMAGE],
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}],
            },
            "assistant",
            [{"type": "reasoning", "content": "hm"}, CALL],
        ),
        ({"role": "assistant", "content": "", "refusal": "no"}, "assistant", [text("no")]),
        ({"role": "tool", "tool_call_id": "c1", "content": "found"}, "tool", [ANSWER]),
        (
            {"role": "assistant", "function_call": FUNCTION},
            "assistant",
            [{**CALL, "id": None}],
        ),
        # Anthropic
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": 1}},
                ],
            },
            "assistant",
            [{"type": "reasoning", "content": "hm"}, CALL],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                    {"type": "image", "source": {"media_type": "image/png", "data": "secret"}},
                ],
            },
            "user",
            [ANSWER, PNG],
        ),
        # Responses
        (
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            "user",
            [text("hi")],
        ),
        ({"type": "function_call", "call_id": "c1", **FUNCTION}, "assistant", [CALL]),
        (
            {"type": "function_call_output", "call_id": "c1", "output": "found"},
            "tool",
            [ANSWER],
        ),
        (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            "assistant",
            [{"type": "reasoning", "content": "hm"}],
        ),
        # Bedrock
        (
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "hm"}}},
                    {"toolUse": {"toolUseId": "c1", "name": "search", "input": {"q": 1}}},
                ],
            },
            "assistant",
            [{"type": "reasoning", "content": "hm"}, CALL],
        ),
        (
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "found"}]}}],
            },
            "user",
            [{**ANSWER, "response": [text("found")]}],
        ),
        # Gemini
        (
            types.Content(
                role="model",
                parts=[
                    types.Part(text="hm", thought=True),
                    types.Part(text="hi"),
                    types.Part.from_function_call(name="search", args={"q": 1}),
                    types.Part.from_bytes(data=b"secret", mime_type="image/png"),
                ],
            ),
            "assistant",
            [{"type": "reasoning", "content": "hm"}, text("hi"), {**CALL, "id": None}, PNG],
        ),
        (types.Part(text="hi"), "user", [text("hi")]),
        (
            types.Content(
                role="user",
                parts=[types.Part.from_function_response(name="search", response={"a": 1})],
            ),
            "user",
            [{**ANSWER, "id": None, "response": {"a": 1}}],
        ),
        # other objects
        (UserMessage(content="hi"), "user", [text("hi")]),
        (ChatCompletionMessage(role="assistant", content="hi"), "assistant", [text("hi")]),
        (loosened({"role": "user", "content": "hi"}), "user", [text("hi")]),
        ({"role": "CHATBOT", "message": "hi"}, "assistant", [text("hi")]),
        ({"role": "user", "content": [{"type": "wonder"}]}, "user", [{"type": "wonder"}]),
    ],
)
def test_messages_of_every_form_have_one_shape(message: Any, role: str, parts: Any) -> None:
    assert one(message) == (role, parts)


def test_nothing_is_consumed_and_what_is_no_message_is_none() -> None:
    given = iter(["a"])
    sent(given)
    assert list(given) == ["a"]
    assert sent(None) is None
    assert sent([]) is None
    assert sent([1, 2, 3]) is None  # tokens


def test_instructions_that_lead_are_a_segment_of_their_own() -> None:
    system = {"role": "system", "content": "Be terse."}
    question = {"role": "user", "content": "hi"}
    found = _messages.chat([system, question], tools=[{"name": "a"}])
    assert dict(found.segments) == {
        "tools": [{"name": "a"}],
        "schema": None,
        "system": [system],
        "messages": [question],
    }
    assert [role for role, _ in found.messages] == ["system", "user"]
    assert list(found.system) == []
    told = _messages.chat([question], system=types.Content(parts=[types.Part(text="Be terse.")]))
    assert list(told.system) == [content.text("Be terse.")]


def test_functions_and_classes_are_told_by_what_they_say() -> None:
    def search(q: str) -> str:
        """Search."""
        return q

    class Named:
        def __call__(self) -> None:
            pass

    found = _messages.chat("hi", tools=[search, Named()], schema=UserMessage).segments
    assert found["tools"] == ["search(q: str) -> str: Search.", Named.__qualname__]
    assert found["schema"] == UserMessage.model_json_schema()
    assert _messages.chat("hi", schema=Named).segments["schema"] == Named.__qualname__
