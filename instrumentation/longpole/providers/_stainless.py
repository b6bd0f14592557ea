"""What the clients that Stainless generates share (OpenAI, Anthropic, Groq).

Every public form of a call (``create``, ``parse``, the ``.stream()`` helper, the raw forms) comes
down to one method of its resource, ``_post``, so that is what is wrapped.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from longpole import transport
from longpole.providers.base import A_DICT, Arguments, Chunks, Prompt, Request, Server, asked

_RAW_HEADER = "X-Stainless-Raw-Response"


def server(client: Any) -> Server:
    """Host and port of the client's base URL."""
    url = client.base_url
    return Server(url.host, url.port)


def place(client: Any) -> object | None:
    """The base URL as the client keeps it; asking for it openly takes an import each time."""
    found: object | None = vars(client).get("_base_url")
    return found


def attach(client: Any) -> Sequence[Callable[[], None]]:
    """Hook the httpx client inside."""
    return transport.hook(getattr(client, "_client", None))


def is_client(client: Any) -> bool:
    """A client, not one of its resources or results."""
    return hasattr(client, "base_url") and hasattr(client, "with_options")


def body_of(path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON body of a ``_post`` to ``path``, with what the application added by ``extra_body``.

    ``None`` for a post to somewhere else.
    """
    body = kwargs.get("body")
    if not (args and isinstance(args[0], str) and isinstance(body, A_DICT)):
        return None
    if args[0] != path and args[0].partition("?")[0] != path:
        return None
    options = kwargs.get("options")
    extra = options.get("extra_json") if isinstance(options, A_DICT) else None
    return {**body, **extra} if extra is not None and isinstance(extra, A_DICT) else body


def request(
    body: Mapping[str, Any],
    kwargs: Mapping[str, Any],
    max_tokens: Any,
    prompt: Callable[[Mapping[str, Any]], Prompt] | None = None,
    *,
    num_choices: int = 1,
    can_ask: bool = False,
) -> Request:
    """What a call asks for, by its JSON body and the arguments of ``_post``.

    Args:
        body: the JSON body.
        kwargs: the arguments.
        max_tokens: what was given under the API's own name for it.
        prompt: reads the prompt in a body, if the call has one.
        num_choices: answers asked for.
        can_ask: the API counts the tokens of a stream when it is asked to.
    """
    is_streamed = body.get("stream") is True
    facts = asked(body.get("model"), max_tokens, body.get("temperature"), body.get("service_tier"))
    # with_raw_response and with_streaming_response hand out the HTTP response.
    options = kwargs.get("options")
    headers = options.get("headers") if isinstance(options, A_DICT) else None
    is_raw = bool(headers) and isinstance(headers, A_DICT) and _RAW_HEADER in headers
    asking: Arguments | None = None
    # Who takes the raw response may read its bytes, and would meet the chunk we asked for.
    if can_ask and is_streamed and not is_raw:
        said = body.get("stream_options")
        if said is None or not isinstance(said, A_DICT):  # else the application decided itself
            asking = {**kwargs, "body": {**body, "stream_options": {"include_usage": True}}}
    read = None if prompt is None else partial(prompt, body)
    return Request(facts, is_streamed, num_choices, is_raw, asking, read)


def chunks(result: Any) -> Chunks | None:
    """Where a ``Stream`` or ``AsyncStream`` keeps its iterator."""
    if hasattr(result, "_iterator") and hasattr(result, "response"):
        return Chunks(result, "_iterator", result.response)
    return None


def error_type(error: BaseException) -> str:
    """The exception's class; for an error event inside a stream, the provider's own code."""
    body = getattr(error, "body", None)
    if isinstance(body, Mapping) and _is_event(error):
        inner = body.get("error", body)
        told = inner if isinstance(inner, Mapping) else body
        for word in (told.get("code"), told.get("type")):
            if isinstance(word, str) and word:
                return word
    return type(error).__name__


def _is_event(error: BaseException) -> bool:
    """It came in a stream: the HTTP status was good, or the exception knows none."""
    status = getattr(error, "status_code", None)
    return type(error).__name__ == "APIError" if status is None else status < 400
