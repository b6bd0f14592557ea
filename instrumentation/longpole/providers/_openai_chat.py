"""OpenAI's older protocol as many hosts speak it: chat completions, completions, embeddings.

Also what such hosts add to it: ``reasoning_content`` (DeepSeek, vLLM, SGLang) or ``reasoning``
(OpenRouter, Groq, newer vLLM) beside the text, usage that leaves reasoning out of the output
count (xAI), cache counts of their own (DeepSeek).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longpole.call import EMPTY, REASONING, ROLE, TEXT, TOOL, UNKNOWN, USAGE, Kind, Usage
from longpole.providers import _messages, _stainless
from longpole.providers.base import Answer, Arguments, Prompt, Request, at_least_one, count, counts
from longpole.reported import reported_cost
from longpole.vocab import keys

_REASONING = ("reasoning_content", "reasoning")


def request(
    body: Mapping[str, Any],
    kwargs: Arguments,
    prompt: Callable[[Mapping[str, Any]], Prompt] | None = None,
    *,
    num_prompts: int = 1,
    can_ask: bool = False,
) -> Request:
    """What a call asks for, by its JSON body and the arguments of ``_post``.

    Args:
        body: the JSON body.
        kwargs: the arguments.
        prompt: reads the prompt in a body, if the call has one.
        num_prompts: how many the body holds, each to be answered ``n`` times.
        can_ask: the API counts the tokens of a stream when it is asked to.
    """
    tokens = body.get("max_completion_tokens")
    tokens = body.get("max_tokens") if tokens is None else tokens
    num_choices = at_least_one(body.get("n")) * num_prompts
    return _stainless.request(
        body, kwargs, tokens, prompt, num_choices=num_choices, can_ask=can_ask
    )


def prompt(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a chat completion."""
    tools = body.get("tools") or body.get("functions")
    return _messages.chat(body.get("messages"), tools=tools, schema=body.get("response_format"))


def completion_prompt(body: Mapping[str, Any]) -> Prompt:
    """The prompt of a completion."""
    return _messages.chat(body.get("prompt"))


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
        return _without_choices(chunk, answer) if used is None else USAGE
    kind: Kind = EMPTY
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
        elif kind is EMPTY or kind is ROLE:
            kind = other_kind(delta)
    return kind


def _without_choices(chunk: Any, answer: Answer) -> Kind:
    """Nothing, or an error: the client raises that, a raw body holds it."""
    error = getattr(chunk, "error", None)
    if error is not None:
        answer.error_type = str(error.code or error.type or "error")
    return EMPTY


def _about(chunk: Any, answer: Answer) -> None:
    """What the first and the last chunks of a stream say beside the text."""
    if answer.response_id is None:
        answer.response_id = getattr(chunk, "id", None) or None
    if answer.model is None:
        answer.model = getattr(chunk, "model", None) or None
    answer.service_tier = getattr(chunk, "service_tier", None) or answer.service_tier
    used = getattr(chunk, "usage", None)
    if used is not None:
        found = usage(used)
        answer.usage = found if answer.usage is UNKNOWN else answer.usage.merged(found)
        note_cost(used, answer)


def note_cost(usage: Any, answer: Answer) -> None:
    """Keep what a usage record says the call cost; most say nothing."""
    cost = reported_cost(_members(usage))
    if cost is not None:
        answer.facts[keys.REPORTED_COST] = cost


def other_kind(delta: Any) -> Kind:
    """What a delta without text carries."""
    said = _members(delta)
    for name in _REASONING:
        if said.get(name):
            return REASONING
    if said.get("refusal"):
        return TEXT
    for call in said.get("tool_calls") or ():
        if _is_called(getattr(call, "function", None)):
            return TOOL
    function = said.get("function_call")
    if function is not None and _is_called(function):
        return TOOL
    audio = said.get("audio")
    if audio is not None and (_part(audio, "data") or _part(audio, "transcript")):
        return TEXT  # what the user perceives
    return ROLE if said.get("role") else EMPTY


def _members(model: Any) -> Any:
    """What a model holds, declared or not, to ``get``: asking it for what it lacks takes long."""
    own = getattr(model, "__dict__", None)
    if not own:
        extra = getattr(model, "model_extra", None)
        return {} if extra is None else extra
    extra = getattr(model, "__pydantic_extra__", None)  # what the public name calls for
    return {**own, **extra} if extra else own


def _is_called(function: Any) -> bool:
    return function is not None and bool(function.name or function.arguments)


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
    prompts = body.get("prompt")
    num_prompts = len(prompts) if isinstance(prompts, list) and _holds_prompts(prompts) else 1
    return request(body, kwargs, completion_prompt, num_prompts=num_prompts, can_ask=True)


def _holds_prompts(prompt: Sequence[Any]) -> bool:
    """Several prompts, as text or as tokens, and not the tokens of one."""
    return bool(prompt) and not isinstance(prompt[0], int)


def completion_chunk(chunk: Any, answer: Answer) -> Kind:
    """Read one chunk of a completion."""
    choices, used = getattr(chunk, "choices", None), chunk.usage
    if answer.response_id is None or used is not None or not choices:
        _about(chunk, answer)
    if not choices:
        return _without_choices(chunk, answer) if used is None else USAGE
    kind: Kind = EMPTY
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
    prompt, completion, total = counts(usage, "prompt_tokens", "completion_tokens", "total_tokens")
    cached = written = reasoning = None
    inside_prompt = getattr(usage, "prompt_tokens_details", None)
    if inside_prompt is not None:
        cached, written = counts(inside_prompt, "cached_tokens", "cache_write_tokens")
    if cached is None:
        cached = count(_members(usage).get("prompt_cache_hit_tokens"))
    inside_output = getattr(usage, "completion_tokens_details", None)
    if inside_output is not None:
        reasoning = count(getattr(inside_output, "reasoning_tokens", None))
    if reasoning and prompt is not None and completion is not None:
        completion += reasoning if total == prompt + completion + reasoning else 0
    return Usage(prompt, cached, written, completion, reasoning)
