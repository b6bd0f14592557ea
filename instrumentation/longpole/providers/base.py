"""The contract of a provider file: names and facts of one client library, no timing.

A file ``providers/<package>.py`` defines one constant ``PROVIDER``. It is imported when a client
of that package comes to ``wrap``, so it must not import the client library itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from longpole.call import UNKNOWN, AttributeValue, Kind
from longpole.vocab import keys

if TYPE_CHECKING:
    from longpole.content import Part
    from longpole.said import Said

Arguments = Mapping[str, Any]
"""The keyword arguments of a wrapped method; a provider names positional ones itself."""

A_DICT = (dict, Mapping)
"""For ``isinstance``: what is a plain dict, as nearly all are, is told without asking its ABC."""

_NUMBER = (int, float)
_TOO_MANY = 1 << 53
"""The most that a number in JSON holds exactly."""


class Server(NamedTuple):
    """Where a client sends its calls; ``port`` is ``None`` when the scheme implies it."""

    host: str
    port: int | None


def server_at(url: str | None) -> Server | None:
    """The server that a URL names, if it names one."""
    found = urlsplit(url or "")
    return Server(found.hostname, found.port) if found.hostname else None


class Prompt(NamedTuple):
    """What a call sends to the model.

    Attributes:
        segments: the request's own objects by segment (``tools``, ``schema``, ``system``,
            ``messages``), in the order in which the model reads them.
        messages: role and parts of each message; read only where content is captured.
        system: parts of the instructions that stand outside the messages; read as those.
    """

    segments: Mapping[str, Any]
    messages: Iterable[tuple[str, "Sequence[Part]"]] = ()
    system: "Iterable[Part]" = ()


class Request(NamedTuple):
    """What one call asks for.

    Attributes:
        facts: by vocabulary key.
        is_streamed: the answer comes as a stream.
        num_choices: answers asked for.
        is_raw: the application gets the HTTP response and may read its body itself.
        asking: the keyword arguments with token counts asked for; ``None`` if they come unasked,
            or if the application decided itself.
        prompt: reads the prompt; it is called only where the application opted in to content or
            to hashes of prompts.
        server: where this call goes, when the client sends each one elsewhere.
    """

    facts: Mapping[str, AttributeValue]
    is_streamed: bool = False
    num_choices: int = 1
    is_raw: bool = False
    asking: Arguments | None = None
    prompt: Callable[[], Prompt] | None = None
    server: Server | None = None


class Chunks(NamedTuple):
    """Where a library's stream object keeps the iterator over its chunks.

    Attributes:
        holder: the object.
        name: its attribute. ``__next__`` or ``__anext__`` where the object is its own iterator:
            its class is then exchanged for a subclass.
        response: what is closed when the stream ends (``close`` or ``aclose``), if there is one.
    """

    holder: Any
    name: str = "_iterator"
    response: Any = None


class Answer:
    """What a response said about itself, gathered chunk by chunk.

    ``num_choices`` is the number of answers asked for: the stream is complete when each has its
    finish reason. ``facts`` are further ones, by vocabulary key. ``said`` gets the text, and is
    ``None`` unless the application opted in.
    """

    __slots__ = (
        "error_type",
        "facts",
        "finish_reasons",
        "model",
        "num_choices",
        "response_id",
        "said",
        "service_tier",
        "usage",
    )

    def __init__(self, num_choices: int = 1) -> None:
        self.num_choices = num_choices
        self.model: str | None = None
        self.response_id: str | None = None
        self.service_tier: str | None = None
        self.error_type: str | None = None
        self.finish_reasons: dict[int, str] = {}
        self.usage = UNKNOWN
        self.facts: dict[str, AttributeValue] = {}
        self.said: Said | None = None

    @property
    def is_finished(self) -> bool:
        """The model said that it is done."""
        return len(self.finish_reasons) >= self.num_choices

    def describe(self, found: dict[str, AttributeValue]) -> None:
        """Add it by vocabulary key, without usage; what was not said is left out."""
        if self.model is not None:
            found[keys.RESPONSE_MODEL] = self.model
        if self.response_id is not None:
            found[keys.RESPONSE_ID] = self.response_id
        if self.service_tier is not None:
            found[keys.SERVICE_TIER] = self.service_tier
        reasons = self.finish_reasons
        if reasons:
            found[keys.FINISH_REASONS] = (
                tuple(reasons.values())
                if len(reasons) == 1
                else tuple([reasons[index] for index in sorted(reasons)])
            )
        if self.error_type is not None:
            found[keys.ERROR_TYPE] = self.error_type
        if self.facts:
            found.update(self.facts)


def known(values: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """The values that are of their kind: ``key -> (value, type or types)``."""
    return {key: value for key, (value, kind) in values.items() if isinstance(value, kind)}


def asked(
    model: Any, max_tokens: Any = None, temperature: Any = None, tier: Any = None
) -> dict[str, AttributeValue]:
    """The facts that every request has; what is not said, or no such value, is left out."""
    found: dict[str, AttributeValue] = {}
    if isinstance(model, str):
        found[keys.REQUEST_MODEL] = model
    if isinstance(max_tokens, int):
        found[keys.REQUEST_MAX_TOKENS] = max_tokens
    if isinstance(temperature, _NUMBER):
        found[keys.REQUEST_TEMPERATURE] = temperature
    if isinstance(tier, str):
        found[keys.SERVICE_TIER_REQUESTED] = tier
    return found


def at_least_one(value: Any) -> int:
    """How many answers were asked for; one unless said."""
    return value if isinstance(value, int) and value > 1 else 1


def count(value: Any) -> int | None:
    """A number of tokens as a server said it; what cannot be one is unknown."""
    return value if type(value) is int and 0 <= value < _TOO_MANY else None


def counts(record: Any, *names: str) -> list[int | None]:
    """Numbers of tokens that a record holds under these names, each as :func:`count` takes it."""
    found: list[int | None] = []
    for name in names:
        value = getattr(record, name, None)
        found.append(value if type(value) is int and 0 <= value < _TOO_MANY else None)
    return found


def _no_chunks(result: Any) -> Chunks | None:
    return None


@dataclass(frozen=True)
class Method:
    """One method of a client that makes a model call.

    Attributes:
        path: leads from the client to it. A client without it is of an older or newer minor
            version: the method is skipped.
        operation: OpenTelemetry's name for the call.
        request: reads the arguments (positional, keyword); ``None``: no model call, or a form
            that must pass through unmeasured.
        chunk: reads one chunk into the answer and says what it carries. ``Kind.USAGE`` only for
            a chunk that exists for the counts alone.
        response: reads a whole result into the answer.
        chunks: where the chunks of a result are, ``None`` if the result is no stream. A result
            that is a generator needs none: a generator of ours stands in for it.
    """

    path: str
    operation: str
    request: Callable[[Sequence[Any], Arguments], Request | None]
    chunk: Callable[[Any, Answer], Kind]
    response: Callable[[Any, Answer], None]
    chunks: Callable[[Any], Chunks | None] = _no_chunks


def _anything(client: Any) -> bool:
    return True


def _nowhere(client: Any) -> None:
    return None


def _never(error: BaseException) -> bool:
    return False


def class_name(error: BaseException) -> str:
    """The exception's class, the least an ``error.type`` says."""
    return type(error).__name__


@dataclass(frozen=True)
class Provider:
    """How to read one client library. Objects of the library are ``Any`` here and only here.

    Attributes:
        package: the library's import name.
        majors: major versions it was tested with; a client of another is left alone.
        classes: its public client classes, for ``instrument``.
        factories: for ``instrument`` too, what makes clients whose classes are made on the fly:
            dotted names of methods that return a client.
        module: where both are, if that is not the package itself.
        is_module: the package's module is itself a client: its functions make calls.
        methods: what to patch.
        name: ``gen_ai.provider.name`` of a client.
        server: where a client sends its calls, if it says so.
        place: what both follow from: while a client has the same object there, neither is asked
            again. ``None`` is not known.
        attach: connects a client's HTTP layer to :mod:`longpole.transport`, returns how to undo
            it.
        copies: client methods that return another client over the same connection.
        is_client: the object is a client of model calls at all.
        prepare: further changes to the client (for instance: no second span of its own), returns
            how to undo them.
        rejects_usage: an error says that the server does not know how to count.
        error_type: ``error.type`` of an exception.
        distribution: the name the package is published under, where it differs.
    """

    package: str
    majors: frozenset[int]
    classes: tuple[str, ...]
    methods: tuple[Method, ...]
    name: Callable[[Any], str]
    server: Callable[[Any], Server | None]
    attach: Callable[[Any], Sequence[Callable[[], None]]]
    place: Callable[[Any], object | None] = _nowhere
    copies: tuple[str, ...] = ()
    factories: tuple[str, ...] = ()
    is_module: bool = False
    is_client: Callable[[Any], bool] = _anything
    prepare: Callable[[Any], Sequence[Callable[[], None]]] | None = None
    rejects_usage: Callable[[BaseException], bool] = _never
    error_type: Callable[[BaseException], str] = class_name
    distribution: str | None = None
    module: str | None = None
