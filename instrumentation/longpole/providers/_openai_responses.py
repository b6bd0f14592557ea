"""OpenAI's Responses API: typed events, of which the last holds the whole response."""

from collections.abc import Mapping, Sequence
from typing import Any

from longpole.call import REASONING, TEXT, TOOL, Kind, Usage
from longpole.providers import _messages, _openai_chat, _stainless
from longpole.providers._messages import member
from longpole.providers.base import Answer, Arguments, Prompt, Request, count
from longpole.said import Said

_DELTAS = {
    "response.output_text.delta": TEXT,
    "response.refusal.delta": TEXT,
    "response.audio.delta": TEXT,
    "response.audio.transcript.delta": TEXT,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
    "response.function_call_arguments.delta": TOOL,
    "response.custom_tool_call_input.delta": TOOL,
    "response.mcp_call_arguments.delta": TOOL,
    "response.code_interpreter_call_code.delta": TOOL,
    "response.shell_call_command.delta": TOOL,
}
_STARTS = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_CALLS = frozenset({"function_call", "custom_tool_call", "mcp_call", "shell_call"})


def request(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    """What a response asks for."""
    body = _stainless.body_of("/responses", args, kwargs)
    if body is None:
        return None
    return _stainless.request(body, kwargs, body.get("max_output_tokens"), prompt)


def prompt(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a response; what went before it may be on the server."""
    text = body.get("text")
    return _messages.chat(
        body.get("input"),
        tools=body.get("tools"),
        schema=text.get("format") if isinstance(text, Mapping) else None,
        system=body.get("instructions"),
    )


def event(event: Any, answer: Answer) -> Kind:
    """Read one event of a stream."""
    name = event.type
    if answer.said is not None:
        _say(event, answer.said)
    kind = _DELTAS.get(name)
    if kind is not None:
        return kind if event.delta else Kind.EMPTY
    if name in _STARTS or name in _ENDS:
        _read(event.response, answer)
        return Kind.ROLE if name in _STARTS else Kind.EMPTY
    if name == "response.output_item.added":  # a call's name comes before its arguments
        item = getattr(event, "item", None)
        is_call = getattr(item, "type", None) in _CALLS and getattr(item, "name", None)
        return TOOL if is_call else Kind.EMPTY
    if name == "error":
        inner = getattr(event, "error", None) or event
        answer.error_type = getattr(inner, "code", None) or getattr(inner, "type", None) or name
    return Kind.EMPTY


def _say(event: Any, said: Said) -> None:
    kind = _DELTAS.get(event.type)
    index = getattr(event, "output_index", None)
    if kind is TEXT:
        is_sound = event.type == "response.audio.delta"
        said.text("" if is_sound else event.delta)
    elif kind is REASONING:
        said.reasoning(event.delta)
    elif kind is TOOL:
        said.call(index, arguments=event.delta)
    elif event.type == "response.output_item.added":
        item = getattr(event, "item", None)
        if member(item, "type") in _CALLS:
            said.call(index, member(item, "name"), call_id=member(item, "call_id"))


def response(result: Any, answer: Answer) -> None:
    """Read a whole response."""
    _read(result, answer)
    if answer.said is not None:
        for item in getattr(result, "output", None) or ():
            is_message = member(item, "type") == "message"
            said = _messages.said_by(item) if is_message else [_messages.block(item)]
            answer.said.parts(said)


def _read(result: Any, answer: Answer) -> None:
    """Read a response as far as it is.

    Its finish reason is its status, or why it is incomplete.
    """
    answer.response_id = getattr(result, "id", None) or answer.response_id
    answer.model = getattr(result, "model", None) or answer.model
    answer.service_tier = getattr(result, "service_tier", None) or answer.service_tier
    used = getattr(result, "usage", None)
    if used is not None:
        answer.usage = answer.usage.merged(_usage(used))
        _openai_chat.note_cost(used, answer)
    status = getattr(result, "status", None)
    if status == "failed":
        error = getattr(result, "error", None)
        answer.error_type = getattr(error, "code", None) or status
    elif status == "incomplete":
        details = getattr(result, "incomplete_details", None)
        answer.finish_reasons[0] = getattr(details, "reason", None) or status
    elif status in ("completed", "cancelled"):
        answer.finish_reasons[0] = status


def _usage(usage: Any) -> Usage:
    """Input holds the cached part and output the reasoning."""
    inside_input = getattr(usage, "input_tokens_details", None)
    inside_output = getattr(usage, "output_tokens_details", None)
    return Usage(
        input_tokens=count(getattr(usage, "input_tokens", None)),
        cached_input_tokens=count(getattr(inside_input, "cached_tokens", None)),
        cache_write_tokens=count(getattr(inside_input, "cache_write_tokens", None)),
        output_tokens=count(getattr(usage, "output_tokens", None)),
        reasoning_tokens=count(getattr(inside_output, "reasoning_tokens", None)),
    )
