"""The Google Gen AI client: Gemini's API and Vertex AI, sync and async, chats included.

A call with functions to run is several calls of the model with the functions between them, so
what is wrapped is the one call underneath (``_generate_content``). A stream without functions is
wrapped where the application makes it, for its parent and its close. Async calls go over aiohttp
where that is installed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from longpole import transport
from longpole.call import Kind, Usage
from longpole.loose import Loose
from longpole.providers import _messages
from longpole.providers._messages import member
from longpole.providers.base import (
    Answer,
    Arguments,
    Method,
    Prompt,
    Provider,
    Request,
    Server,
    asked,
    at_least_one,
    class_name,
    count,
    server_at,
)
from longpole.said import Said

_TIER_HEADER = "x-gemini-service-tier"


def _name(client: Any) -> str:
    return "gcp.vertex_ai" if client._api_client.vertexai else "gcp.gemini"


def _server(client: Any) -> Server | None:
    return server_at(client._api_client._http_options.base_url)


def _attach(client: Any) -> Sequence[Callable[[], None]]:
    """The httpx clients, and those made for each event loop: aiohttp sessions or httpx clients."""
    api = client._api_client
    return [
        *transport.hook(api._httpx_client, api._async_httpx_client),
        *transport.hook_made_by(api._async_httpx_client, "_client_for_running_loop"),
        *transport.hook_made_by(api, "_get_aiohttp_session"),
    ]


# --- requests ----------------------------------------------------------------------------------


def _call(args: Sequence[Any], kwargs: Arguments) -> Request:
    config = kwargs.get("config")  # an object of the library or a plain dictionary
    return Request(
        facts=asked(
            kwargs.get("model"),
            member(config, "max_output_tokens"),
            member(config, "temperature"),
            _word(member(config, "service_tier")),
        ),
        num_choices=at_least_one(member(config, "candidate_count")),
        prompt=partial(_prompt, kwargs) if "contents" in kwargs else None,
    )


def _embedding(args: Sequence[Any], kwargs: Arguments) -> Request:
    return _call(args, kwargs)._replace(prompt=None)


def _prompt(kwargs: Arguments) -> Prompt:
    config = kwargs.get("config")
    return _messages.chat(
        kwargs["contents"],
        tools=member(config, "tools"),
        schema=_messages.first(config, "response_schema", "response_json_schema"),
        system=member(config, "system_instruction"),
    )


def _stream(args: Sequence[Any], kwargs: Arguments) -> Request:
    return _call(args, kwargs)._replace(is_streamed=True)


def _plain_stream(args: Sequence[Any], kwargs: Arguments) -> Request | None:
    """A stream that stays one call of the model: no function is there for the library to run."""
    tools = member(kwargs.get("config"), "tools") or ()
    return _stream(args, kwargs) if all(map(_is_declaration, tools)) else None


def _is_declaration(tool: Any) -> bool:
    if not isinstance(tool, Mapping) and not hasattr(tool, "function_declarations"):
        return False
    return not member(tool, "mcp_servers")


# --- answers -----------------------------------------------------------------------------------


def _word(value: Any) -> Any:
    """An enumeration's value; other values as they are."""
    return getattr(value, "value", value)


def _chunk(chunk: Any, answer: Answer) -> Kind:
    _read(chunk, answer)
    if answer.said is not None:
        _say(chunk, answer.said)
    kind = Kind.EMPTY
    for candidate in chunk.candidates or ():
        for part in _parts(candidate):
            found = _kind(part)
            if found is Kind.TEXT:
                return found
            if found is not Kind.EMPTY:
                kind = found
    return kind


def _parts(candidate: Any) -> Sequence[Any]:
    content = candidate.content
    return (content.parts or ()) if content is not None else ()


def _kind(part: Any) -> Kind:
    """What one part carries; what code or a tool on the server answered is no output."""
    if part.text:
        return Kind.REASONING if part.thought else Kind.TEXT
    if part.function_call is not None or part.executable_code is not None:
        return Kind.TOOL
    return Kind.TEXT if part.inline_data is not None else Kind.EMPTY


def _response(result: Any, answer: Answer) -> None:
    http = result.sdk_http_response
    if result.candidates is None and http is not None and http.body:
        result = _Camel(json.loads(http.body))  # asked for with should_return_http_response
    _read(result, answer)
    if answer.said is not None:
        _say(result, answer.said)


def _say(result: Any, said: Said) -> None:
    for candidate in result.candidates or ():
        shown = [part for part in _parts(candidate) if _kind(part) is not Kind.EMPTY]
        said.parts(map(_messages.block, shown), candidate.index or 0)


def _read(result: Any, answer: Answer) -> None:
    if answer.model is None:
        _read_head(result, answer)
    for candidate in result.candidates or ():
        reason = candidate.finish_reason
        if reason is not None:
            answer.finish_reasons[candidate.index or 0] = _word(reason)
    feedback, usage = result.prompt_feedback, result.usage_metadata
    if feedback is not None and feedback.block_reason is not None:
        blocked = dict.fromkeys(range(answer.num_choices), _word(feedback.block_reason))
        answer.finish_reasons.update(blocked)
    if usage is not None:
        answer.usage = answer.usage.merged(_usage(usage))
        if usage.traffic_type is not None:
            answer.service_tier = _word(usage.traffic_type)


def _read_head(result: Any, answer: Answer) -> None:
    """What each chunk says again."""
    answer.response_id, answer.model = result.response_id or None, result.model_version or None
    http = result.sdk_http_response
    if http is not None and http.headers:
        answer.service_tier = http.headers.get(_TIER_HEADER)


def _usage(usage: Any) -> Usage:
    """Gemini's counts: thoughts stand beside the candidates, the prompt holds the cached part.

    What tools on the server gave the model to read stands beside the prompt.
    """
    read, thoughts = usage.tool_use_prompt_token_count, usage.thoughts_token_count
    given, written = count(usage.prompt_token_count), count(usage.candidates_token_count)
    if thoughts is not None:
        thoughts = count(thoughts)
        written = _sum(written, thoughts)
    return Usage(
        input_tokens=given if read is None else _sum(given, count(read)),
        cached_input_tokens=count(usage.cached_content_token_count),
        output_tokens=written,
        reasoning_tokens=thoughts,
    )


def _sum(main: int | None, beside: int | None) -> int | None:
    if main is None or beside is None:
        return beside if main is None else main
    return main + beside


def _embeddings(result: Any, answer: Answer) -> None:
    """Vertex tells the tokens of each text, Gemini's API those of the call."""
    usage = result.usage_metadata
    if usage is not None:
        answer.usage = Usage(input_tokens=count(usage.prompt_token_count))
        return
    told = [each.statistics for each in result.embeddings or ()]
    counts = [each.token_count for each in told if each is not None]
    if counts and None not in counts:
        answer.usage = Usage(input_tokens=int(sum(counts)))


class _Camel(Loose):
    """The service's own JSON, read by the library's names."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        first, *others = name.split("_")
        return _camel(self._members.get(first + "".join(map(str.capitalize, others))))


def _camel(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Camel(value)
    return [_camel(item) for item in value] if isinstance(value, list) else value


def _error_type(error: BaseException) -> str:
    """The service's own status (``RESOURCE_EXHAUSTED``) where the error carries one."""
    status = getattr(error, "status", None)
    is_said = isinstance(status, str) and status.replace("_", "").isupper()
    return str(status) if is_said else class_name(error)


# --- the client --------------------------------------------------------------------------------


def _methods(models: str) -> tuple[Method, ...]:
    return (
        Method(
            f"{models}.generate_content_stream",
            "generate_content",
            _plain_stream,
            _chunk,
            _response,
        ),
        Method(f"{models}._generate_content", "generate_content", _call, _chunk, _response),
        Method(
            f"{models}._generate_content_stream", "generate_content", _stream, _chunk, _response
        ),
        Method(f"{models}.embed_content", "embeddings", _embedding, _chunk, _embeddings),
    )


PROVIDER = Provider(
    package="google.genai",
    distribution="google-genai",
    majors=frozenset({3}),
    classes=("Client",),
    methods=_methods("models") + _methods("aio.models"),
    is_client=lambda client: hasattr(client, "_api_client"),
    name=_name,
    server=_server,
    attach=_attach,
    error_type=_error_type,
)
