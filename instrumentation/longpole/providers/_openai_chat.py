"""OpenAI's older protocol as many hosts speak it: chat completions, completions, embeddings.

Also what such hosts add to it: ``reasoning_content`` (DeepSeek, vLLM, SGLang) or ``reasoning``
(OpenRouter, Groq, newer vLLM) beside the text, usage that leaves reasoning out of the output
count (xAI), cache counts of their own (DeepSeek).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longpole.call import TEXT, Kind, Usage
from longpole.providers import _messages, _stainless
from longpole.providers.base import Answer, Arguments, Prompt, Request, at_least_one, count

_REASONING = ("reasoning_content", "reasoning")


def request(
    body: Mapping[str, Any],
    kwargs: Arguments,
    prompt: Callable[[Mapping[str, Any]], Prompt] | None = None,
) -> Request:
    """What a call asks for, by its JSON body and the arguments of ``_post``."""
    tokens = body.get("max_completion_tokens")
    tokens = body.get("max_tokens") if tokens is None else tokens
    found = _stainless.request(body, kwargs, tokens, prompt)
    return found._replace(num_choices=at_least_one(body.get("n")))


def prompt(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a chat completion."""
    tools = body.get("tools") or body.get("functions")
    return _messages.chat(body.get("messages"), tools=tools, schema=body.get("response_format"))


def completion_prompt(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a completion."""
    return _messages.chat(body.get("prompt"))


def asking(body: Mapping[str, Any], kwargs: Arguments) -> Arguments | None:
    """The arguments of a streamed call with token counts asked for, unless somebody decided."""
    is_said = isinstance(body.get("stream_options"), Mapping)
    # Who takes the raw response may read its bytes, and would meet the chunk we asked for.
    if is_said or body.get("stream") is not True or _stainless.is_raw(kwargs):
        return None
    return {**kwargs, "body": {**body, "stream_options": {"include_usage": True}}}


def rejects_usage(error: BaseException) -> bool:
    """A server that does not know ``stream_options`` says so."""
    if getattr(error, "status_code", None) not in (400, 422):
        return False
    text = f"{error} {getattr(error, 'body', '')}"
    return "stream_options" in text or "include_usage" in text


# --- chat completions --------------------------------------------------------------------------


def chunk(chunk: Any, answer: Answer) -> Kind:
    """Read one chunk of a chat completion."""
    choices, used = getattr(chunk, "choices", None), chunk.usage
    if answer.response_id is None or used is not None or not choices:
        _about(chunk, answer)
    if not choices:
        return _without_choices(chunk, answer)
    kind = Kind.EMPTY
    for choice in choices:
        if choice.finish_reason is not None:
            answer.finish_reasons[getattr(choice, "index", None) or 0] = choice.finish_reason
            _about(chunk, answer)
        delta = getattr(choice, "delta", None)
        if delta is None:
            continue
        if answer.said is not None:
            _messages.say_delta(delta, answer.said, getattr(choice, "index", None) or 0)
        if delta.content:
            kind = TEXT
        elif kind is Kind.EMPTY or kind is Kind.ROLE:
            kind = other_kind(delta)
    return kind


def _without_choices(chunk: Any, answer: Answer) -> Kind:
    """Counts, or an error: the client raises that, a raw body holds it."""
    if chunk.usage is not None:
        return Kind.USAGE
    error = getattr(chunk, "error", None)
    if error is not None:
        answer.error_type = str(error.code or error.type or "error")
    return Kind.EMPTY


def _about(chunk: Any, answer: Answer) -> None:
    """What the first and the last chunks of a stream say beside the text."""
    answer.response_id = answer.response_id or getattr(chunk, "id", None) or None
    answer.model = answer.model or getattr(chunk, "model", None) or None
    answer.service_tier = getattr(chunk, "service_tier", None) or answer.service_tier
    used = getattr(chunk, "usage", None)
    if used is not None:
        answer.usage = answer.usage.merged(usage(used))


def other_kind(delta: Any) -> Kind:
    """What a delta without text carries."""
    extra = delta.model_extra or {}
    own = getattr(delta, "__dict__", None) or extra  # asking a model for what it lacks takes long
    if any(own.get(name) or extra.get(name) for name in _REASONING):
        return Kind.REASONING
    if own.get("refusal") or extra.get("refusal"):
        return TEXT
    asked = own.get("tool_calls") or extra.get("tool_calls") or ()
    calls = [getattr(call, "function", None) for call in asked]
    calls.append(own.get("function_call") or extra.get("function_call"))
    if any(call.name or call.arguments for call in calls if call is not None):
        return Kind.TOOL
    audio = own.get("audio") or extra.get("audio")
    if audio is not None and any(_part(audio, name) for name in ("data", "transcript")):
        return TEXT  # what the user perceives
    return Kind.ROLE if delta.role else Kind.EMPTY


def _part(audio: Any, name: str) -> Any:
    """A part of what came without a declared type (plain), or with one."""
    return audio.get(name) if isinstance(audio, Mapping) else getattr(audio, name, None)


def response(result: Any, answer: Answer) -> None:
    """Read a whole chat completion, completion or list of embeddings."""
    _about(result, answer)
    for choice in getattr(result, "choices", None) or ():
        index = getattr(choice, "index", None) or 0
        if choice.finish_reason is not None:
            answer.finish_reasons[index] = choice.finish_reason
        if answer.said is not None:
            said = getattr(choice, "message", None) or getattr(choice, "text", None)
            answer.said.parts(_messages.said_by(said), index)


# --- completions -------------------------------------------------------------------------------


def completion_request(body: Mapping[str, Any], kwargs: Arguments) -> Request:
    """What a completion asks for: as a chat, with as many answers for each prompt."""
    asked = request(body, kwargs, completion_prompt)
    prompts = body.get("prompt")
    num_prompts = len(prompts) if isinstance(prompts, list) and _holds_prompts(prompts) else 1
    return asked._replace(num_choices=asked.num_choices * num_prompts, asking=asking(body, kwargs))


def _holds_prompts(prompt: Sequence[Any]) -> bool:
    """Several prompts, as text or as tokens, and not the tokens of one."""
    return bool(prompt) and not isinstance(prompt[0], int)


def completion_chunk(chunk: Any, answer: Answer) -> Kind:
    """Read one chunk of a completion."""
    choices = getattr(chunk, "choices", None) or ()
    if answer.response_id is None or chunk.usage is not None or not choices:
        _about(chunk, answer)
    if not choices:
        return _without_choices(chunk, answer)
    kind = Kind.EMPTY
    for choice in choices:
        reason = getattr(choice, "finish_reason", None)
        if reason is not None:
            answer.finish_reasons[getattr(choice, "index", None) or 0] = reason
        text = getattr(choice, "text", None)
        if text:
            kind = TEXT
            if answer.said is not None:
                answer.said.text(text, getattr(choice, "index", None) or 0)
    return kind


# --- token counts ------------------------------------------------------------------------------


def usage(usage: Any) -> Usage:
    """OpenAI's counts: input holds the cached part and output the reasoning.

    A host that counts reasoning beside the output shows it in the total.
    """
    prompt = count(getattr(usage, "prompt_tokens", None))
    completion = count(getattr(usage, "completion_tokens", None))
    total = count(getattr(usage, "total_tokens", None))
    inside_prompt = getattr(usage, "prompt_tokens_details", None)
    cached = count(getattr(inside_prompt, "cached_tokens", None))
    if cached is None:
        cached = count(getattr(usage, "prompt_cache_hit_tokens", None))
    inside_output = getattr(usage, "completion_tokens_details", None)
    reasoning = count(getattr(inside_output, "reasoning_tokens", None))
    if reasoning and prompt is not None and completion is not None:
        completion += reasoning if total == prompt + completion + reasoning else 0
    return Usage(
        input_tokens=prompt,
        cached_input_tokens=cached,
        cache_write_tokens=count(getattr(inside_prompt, "cache_write_tokens", None)),
        output_tokens=completion,
        reasoning_tokens=reasoning,
    )
