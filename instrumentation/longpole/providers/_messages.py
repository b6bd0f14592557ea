"""Messages and their blocks in the providers' own forms, as parts of :mod:`longpole.content`.

One reader for all: the forms differ in names, and no name means two things. What is read may be
plain JSON or a library's object. Nothing is consumed: only lists and tuples are walked.
"""

from collections.abc import Iterator, Mapping, Sequence
from inspect import isroutine, signature
from itertools import takewhile
from typing import Any

from longpole import content
from longpole.content import Part
from longpole.providers.base import Prompt
from longpole.said import Said

_CALLS = ("function_call", "functionCall", "toolUse")
_RESPONSES = ("function_response", "functionResponse", "toolResult")
_CALL_TYPES = frozenset(
    {
        "custom_tool_call",
        "function_call",
        "mcp_call",
        "mcp_tool_use",
        "server_tool_use",
        "shell_call",
        "tool_use",
    }
)
_MESSAGE_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "tool_plan")
_THOUGHTS = ("thinking", "reasoningContent", "reasoningText")
_MODALITIES = ("image", "audio", "video", "document", "file")
_SOURCES = ("inline_data", "inlineData", "file_data", "fileData", "source")
_MIME_TYPES = ("mime_type", "mimeType", "media_type", "format")
_SYSTEM = frozenset({"system", "developer"})
_ROLES = {"model": "assistant", "CHATBOT": "assistant", "USER": "user", "SYSTEM": "system"}
_ROLE_OF = {"tool_call": "assistant", "reasoning": "assistant", "tool_call_response": "tool"}


def member(found: Any, name: str) -> Any:
    """A member of an object or of plain JSON, ``None`` where it has none."""
    if isinstance(found, dict) or isinstance(found, Mapping):  # noqa: SIM101 - a dict is told fast
        return found.get(name)
    own = getattr(found, "__dict__", ())
    if own and name in own:
        return own[name]
    if hasattr(
        type(found), "__pydantic_extra__"
    ):  # asking such an object for what it lacks takes long
        return (found.__pydantic_extra__ or {}).get(name)
    return getattr(found, name, None)


def first(found: Any, *names: str) -> Any:
    """The first member that is there."""
    return next((value for name in names if (value := member(found, name)) is not None), None)


# --- prompts -----------------------------------------------------------------------------------


def chat(
    messages: Any, *, tools: Any = None, schema: Any = None, system: Any = None, more: Any = None
) -> Prompt:
    """A conversation.

    Args:
        messages: as given: a list, or one text.
        tools: definitions of tools.
        schema: of the answer.
        system: instructions that stand outside the messages.
        more: segments between the instructions and the messages, by name.
    """
    is_list = isinstance(messages, list | tuple)
    leading = list(takewhile(_is_system, messages)) if is_list and system is None else []
    segments = {
        "tools": list(map(_described, tools)) if isinstance(tools, list | tuple) else tools,
        "schema": _described(schema),
        "system": leading if system is None else system,
        **(more or {}),
        "messages": messages[len(leading) :] if is_list else messages,
    }
    return Prompt(segments, _messages(messages), _instructions(system))


def _is_system(message: Any) -> bool:
    return _ROLES.get(role := member(message, "role"), role) in _SYSTEM


def _described(found: Any) -> Any:
    """A definition; of a function or class that the library will describe, what it says."""
    if isinstance(found, type):
        schema = getattr(found, "model_json_schema", None)
        return found.__qualname__ if schema is None else schema()
    if isroutine(found):
        return f"{found.__name__}{signature(found)}: {found.__doc__}"
    return type(found).__qualname__ if callable(found) else found


def _instructions(system: Any) -> Iterator[Part]:
    yield from parts_of(first(system, "parts") or system)


def _messages(found: Any) -> Iterator[tuple[str, Sequence[Part]]]:
    for message in found if isinstance(found, list | tuple) else [found]:
        role, parts = _message(message)
        if parts:
            yield role, parts


def _message(found: Any) -> tuple[str, Sequence[Part]]:
    role = member(found, "role")
    if role is None:  # a text, or an item that is no message
        parts = parts_of(found)
        return _ROLE_OF.get(parts[0]["type"] if parts else "", "user"), parts
    role = str(_ROLES.get(role, role))
    if role == "tool" and member(found, "content") is not None:
        return role, [_response(found)]
    return role, said_by(found)


def said_by(found: Any) -> list[Part]:
    """What a message says: its reasoning, its content, the tools it asks for; or a bare text."""
    if found is None or isinstance(found, str):
        return parts_of(found)
    parts = [*_said_parts(found), *map(tool_call, member(found, "tool_calls") or ())]
    call = member(found, "function_call")
    return parts if call is None else [*parts, tool_call(call)]


def _said_parts(found: Any) -> list[Part]:
    thought = _thought_beside(found)
    told = (parts_of(member(found, name)) for name in ("content", "parts", "message", "refusal"))
    said = next((parts for parts in told if parts), [])
    return [content.reasoning(thought), *said] if thought else said


def _thought_beside(found: Any) -> str:
    """The reasoning that stands beside a message's content, else empty."""
    for name in _MESSAGE_THOUGHTS:
        thought = member(found, name)
        if isinstance(thought, str) and thought:
            return thought
    return ""


# --- answers -----------------------------------------------------------------------------------


def say_delta(delta: Any, said: Said, choice: int) -> None:
    """What a delta of OpenAI's form adds to an answer."""
    said.reasoning(_thought_beside(delta), choice)
    told = member(delta, "content") or member(delta, "refusal")
    if isinstance(told, str):
        said.text(told, choice)
    elif told:
        said.parts(parts_of(told), choice)
    for call in member(delta, "tool_calls") or ():
        inner = member(call, "function") or call
        arguments = member(inner, "arguments")
        if arguments is None or isinstance(arguments, str):
            call_id = member(call, "id")
            index = member(call, "index")
            name = member(inner, "name")
            said.call(call_id if index is None else index, name, arguments, call_id, choice)
        else:
            said.parts([tool_call(call)], choice)
    call = member(delta, "function_call")
    if call is not None:
        said.call("function", member(call, "name"), member(call, "arguments"), choice=choice)


def say_event(event: Any, said: Said) -> None:
    """What an event of Anthropic's form adds to an answer."""
    kind, index = member(event, "type"), member(event, "index")
    if kind == "content_block_delta":
        delta = member(event, "delta")
        said.text(member(delta, "text") or "")
        said.reasoning(member(delta, "thinking") or "")
        if member(delta, "partial_json"):
            said.call(index, arguments=member(delta, "partial_json"))
    elif kind == "content_block_start":
        begun = member(event, "content_block")
        if member(begun, "type") in _CALL_TYPES:
            said.call(index, member(begun, "name"), None, member(begun, "id"))
        elif member(begun, "type") not in ("thinking", "redacted_thinking"):
            said.parts(parts_of(begun))


# --- blocks ------------------------------------------------------------------------------------


def parts_of(found: Any) -> list[Part]:
    """The parts of a message's content: a text, or blocks."""
    if isinstance(found, str):
        return [content.text(found)] if found else []
    if isinstance(found, list | tuple):
        return [part for block in found for part in parts_of(block)]
    # Numbers are tokens, and tell nothing to a reader.
    return [] if found is None or isinstance(found, int | float) else [block(found)]


def block(found: Any) -> Part:
    """One block of a message's content."""
    kind = str(member(found, "type") or "")
    if kind in _CALL_TYPES:
        return tool_call(found)
    if kind.endswith(("tool_result", "_output")):
        return _response(found)
    for names, make in ((_CALLS, tool_call), (_RESPONSES, _response)):
        inner = first(found, *names)
        if inner is not None:
            return make(inner)
    thought = _thought(found, kind)
    if thought:
        return content.reasoning(thought)
    said = first(found, "text", "refusal")
    if isinstance(said, str):
        return content.reasoning(said) if member(found, "thought") else content.text(said)
    return _other(found, kind)


def tool_call(found: Any) -> Part:
    """A call of a tool, whose name and arguments may stand one level down."""
    inner = first(found, "function", "custom") or found
    arguments = first(inner, "arguments", "input", "args", "parameters")
    call_id = first(found, "call_id", "id", "toolUseId")
    return content.tool_call(str(member(inner, "name") or ""), arguments, call_id)


def _response(found: Any) -> Part:
    call_id = first(found, "tool_use_id", "tool_call_id", "call_id", "toolUseId", "id")
    told = first(found, "content", "output", "response")
    return content.tool_response(parts_of(told) if isinstance(told, list) else told, call_id)


def _thought(found: Any, kind: str) -> str:
    """The reasoning that a block is, in any of its forms, else empty."""
    told = first(found, *_THOUGHTS)
    if told is None and kind == "reasoning":
        told = [first(found, "content"), first(found, "summary")]
    if told is None or isinstance(told, str):
        return told or ""
    if isinstance(told, list | tuple):
        texts = [text for item in told if item for text in _flat(item)]
        return "".join(texts)
    return _thought(told, "") or str(member(told, "text") or "")


def _flat(found: Any) -> Iterator[str]:
    for item in found if isinstance(found, list | tuple) else [found]:
        text = member(item, "text")
        if isinstance(text, str):
            yield text


def _other(found: Any, kind: str) -> Part:
    """An image, a sound, a file; of what else there may be the kind is all that is told."""
    inner = first(found, *_SOURCES, *_MODALITIES) or found
    told = first(inner, *_MIME_TYPES)
    mime = told if isinstance(told, str) else ""
    for modality in _MODALITIES:
        if modality in f"{kind} {mime}" or member(found, modality) is not None:
            is_whole = "/" in mime or not mime  # Bedrock says ``png``
            return content.media(modality, (mime if is_whole else f"{modality}/{mime}") or None)
    if member(found, "json") is not None:
        return {"type": "json", "content": member(found, "json")}
    return {"type": kind or type(found).__name__}
