"""The contract of a provider file: names and facts of one client library, no timing.

A file ``providers/<package>.py`` defines one constant ``PROVIDER``. It is imported when a client
of that package comes to ``wrap``, so it must not import the client library itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from longpole.call import AttributeValue, Kind, Usage
from longpole.vocab import keys

Request = dict[str, AttributeValue]
"""Facts of a request, by vocabulary key."""


class Method(NamedTuple):
    """One method of a client that makes a model call.

    ``path`` leads from the client to it, ``operation`` is OpenTelemetry's name for the call, and
    ``caches`` names attributes of the method's owner that hold bound copies of the method.
    """

    path: str
    operation: str
    caches: tuple[str, ...] = ()


class Server(NamedTuple):
    """Where a client sends its calls; ``port`` is ``None`` when the scheme implies it."""

    host: str
    port: int | None


@dataclass(slots=True)
class Answer:
    """What a response said about itself, gathered chunk by chunk; no text.

    ``num_choices`` is the number of answers asked for: the stream is complete when each has its
    finish reason.
    """

    num_choices: int = 1
    model: str | None = None
    response_id: str | None = None
    service_tier: str | None = None
    finish_reasons: dict[int, str] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    @property
    def is_finished(self) -> bool:
        """The model said that it is done."""
        return len(self.finish_reasons) >= self.num_choices

    def attributes(self) -> dict[str, AttributeValue]:
        """By vocabulary key, without usage; what was not said is left out."""
        found: dict[str, AttributeValue | None] = {
            keys.RESPONSE_MODEL: self.model,
            keys.RESPONSE_ID: self.response_id,
            keys.SERVICE_TIER: self.service_tier,
            keys.FINISH_REASONS: [self.finish_reasons[i] for i in sorted(self.finish_reasons)]
            or None,
        }
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True)
class Provider:
    """How to read one client library. Objects of the library are ``Any`` here and only here.

    Attributes:
        package: the library's import name.
        majors: major versions it was tested with; a client of another is left alone.
        classes: its public client classes, for ``instrument``.
        methods: what to patch.
        copies: client methods that return another client over the same connection.
        name: ``gen_ai.provider.name`` of a client.
        server: where a client sends its calls.
        http_client: the client's HTTP client, if it has ``event_hooks`` (httpx, httpx2).
        request: facts of a request from its keyword arguments.
        num_choices: answers a request asks for.
        is_untouched: a form of the call that must pass through unmeasured.
        with_usage: the keyword arguments with token counts asked for; ``None`` if the
            application decided itself or the call does not stream.
        rejects_usage: an error says that the server does not know how to count.
        stream: the library's stream object in a result, ``None`` if the result is no stream. Its
            attribute ``_iterator`` yields the chunks and ``response`` is the HTTP response.
        chunk: reads one chunk into the answer and says what it carries. ``Kind.USAGE`` only for
            a chunk that exists for the counts alone.
        response: reads a whole result into the answer.
        error_type: ``error.type`` of an exception.
    """

    package: str
    majors: frozenset[int]
    classes: tuple[str, ...]
    methods: tuple[Method, ...]
    copies: tuple[str, ...]
    name: Callable[[Any], str]
    server: Callable[[Any], Server]
    http_client: Callable[[Any], Any]
    request: Callable[[Mapping[str, Any]], Request]
    num_choices: Callable[[Mapping[str, Any]], int]
    is_untouched: Callable[[Mapping[str, Any]], bool]
    with_usage: Callable[[Mapping[str, Any]], dict[str, Any] | None]
    rejects_usage: Callable[[BaseException], bool]
    stream: Callable[[Any], Any]
    chunk: Callable[[Any, Answer], Kind]
    response: Callable[[Any, Answer], None]
    error_type: Callable[[BaseException], str]
