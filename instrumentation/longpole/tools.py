"""Tool calls: their deadline, their attempts, and whether a failed one may be sent again."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, overload

from longpole import health, settings
from longpole.call import AttributeValue
from longpole.context import Facts, is_cancel
from longpole.step import F, Step, StepKind
from longpole.vocab import keys

ErrorClass = Literal["retryable", "not_retryable", "unknown_commit"]
"""What a failure means for the next attempt.

``unknown_commit``: the tool may have done its work although no answer came, so sending the call
again may do it twice.
"""

_MAX_CAUSES = 5
_REFUSED_STATUS = frozenset((425, 429, 503))
_UNKNOWN_STATUS = frozenset((408, *range(500, 600))) - _REFUSED_STATUS
_NOT_SENT = frozenset(
    [
        "ConnectionRefusedError",
        "gaierror",
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ConnectTimeoutError",
        "NewConnectionError",
        "ClientConnectorError",
        "ConnectionTimeoutError",
    ]
)
_NO_ANSWER = frozenset(
    [
        "TimeoutError",
        "Timeout",
        "TimeoutException",
        "ConnectionError",
        "ReadError",
        "WriteError",
        "ProtocolError",
        "ServerDisconnectedError",
        "ChunkedEncodingError",
        "IncompleteRead",
        "APIConnectionError",
    ]
)
_NOT_AGAIN = (ValueError, TypeError, LookupError, PermissionError, NotImplementedError)


class Tool(Step):
    """One attempt of a tool call."""

    def __init__(
        self,
        name: str,
        attributes: Facts,
        *,
        deadline_s: float | None = None,
        idempotency_key: str | bool | None = None,
        retry_of: "Tool | None" = None,
    ) -> None:
        facts: dict[str, AttributeValue] = dict(attributes)
        self._has_key = None if idempotency_key is None else bool(idempotency_key)
        if self._has_key is not None:
            facts[keys.TOOL_HAS_IDEMPOTENCY_KEY] = self._has_key
        self.attempt: int = 1 if retry_of is None else retry_of.attempt + 1
        if retry_of is not None:
            facts[keys.TOOL_ATTEMPT] = self.attempt
            facts[keys.TOOL_RETRY_OF] = retry_of.span_id
        self._error_class: ErrorClass | None = None
        super().__init__(name, facts, deadline_s=deadline_s)

    def error_class(self, name: ErrorClass) -> None:
        """Say what the failure means: it wins over what longpole makes of the exception."""
        if name not in get_args(ErrorClass):
            health.warn_once("error_class", f"longpole knows no error class '{name}'")
        elif not self.is_late():
            self._error_class = name

    def begin(self) -> None:
        """Start the span."""
        self._error_class = None
        super().begin()

    def arguments(self, value: object) -> None:
        """What the tool is called with; kept only when content is captured."""
        self._keep(keys.TOOL_ARGUMENTS, value)

    def result(self, value: object) -> None:
        """What the tool answered; kept only when content is captured."""
        self._keep(keys.TOOL_RESULT, value)

    def _keep(self, key: str, value: object) -> None:
        if not settings.current().capture_content:
            return
        from longpole import content

        text = content.value(value)
        if text is not None:
            self.set(key, text)

    def _took(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        if settings.current().capture_content:
            try:
                self.arguments(_named(function, args, kwargs))
            except Exception as error:  # noqa: BLE001 - counted; the tool runs
                health.swallow("content", error)

    def _gave(self, result: object) -> None:
        self.result(result)

    def _conclude(self, error: BaseException | None) -> None:
        super()._conclude(error)
        if error is not None:
            self._error_class = self._error_class or class_of(error, has_key=self._has_key)
        if self._error_class is not None:
            self._span.set_attribute(keys.TOOL_ERROR_CLASS, self._error_class)


class ToolKind(StepKind[Tool]):
    """The kind of step that is a tool call."""

    @overload
    def __call__(self, name: F) -> F: ...
    @overload
    def __call__(
        self,
        name: str | None = None,
        *,
        deadline_s: float | None = None,
        idempotency_key: str | bool | None = None,
        retry_of: Tool | None = None,
    ) -> Tool: ...
    def __call__(
        self,
        name: F | str | None = None,
        *,
        deadline_s: float | None = None,
        idempotency_key: str | bool | None = None,
        retry_of: Tool | None = None,
    ) -> F | Tool:
        """A tool call.

        Args:
            name: what the tool is called; default for a decorator is the function's name.
            deadline_s: seconds it should take; whether it took longer is recorded, nothing is
                stopped.
            idempotency_key: the key the call is sent with, or whether it has one. Only that is
                recorded, never the key.
            retry_of: the failed attempt that this one repeats.
        """
        if callable(name):
            return super().__call__(name)
        options = {
            "deadline_s": deadline_s,
            "idempotency_key": idempotency_key,
            "retry_of": retry_of,
        }
        return self.make(name, options)


def class_of(error: BaseException, *, has_key: bool | None = None) -> ErrorClass | None:
    """What an exception that left a tool call means for the next attempt.

    Told by type name, so that no client library is imported for it, and by HTTP status:

    - never sent (connection refused, no such host, connect timeout): ``retryable``;
    - refused by the server (425, 429, 503): ``retryable``;
    - sent without an answer that counts (timeout, cancel, connection lost, 408, other 5xx):
      ``unknown_commit``, but ``retryable`` when the call has an idempotency key;
    - other 4xx, and errors that the same input brings again (ValueError, TypeError, LookupError,
      PermissionError, NotImplementedError): ``not_retryable``;
    - anything else: ``None``, unknown.
    """
    unanswered: ErrorClass = "retryable" if has_key else "unknown_commit"
    if isinstance(error, GeneratorExit):
        return None
    if is_cancel(error):
        return unanswered
    status = _status(error)
    if status in _REFUSED_STATUS:
        return "retryable"
    if status in _UNKNOWN_STATUS:
        return unanswered
    if status is not None and 400 <= status < 500:
        return "not_retryable"
    names = {name for cause in _causes(error) for name in _names(cause)}
    if names & _NOT_SENT:
        return "retryable"
    if names & _NO_ANSWER:
        return unanswered
    return "not_retryable" if isinstance(error, _NOT_AGAIN) else None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps; not what merely happened before it."""
    inner: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if inner is None:
            return
        yield inner
        held = (inner.__cause__, getattr(inner, "reason", None), *inner.args)
        inner = next((item for item in held if isinstance(item, BaseException)), None)


def _names(error: BaseException) -> Iterator[str]:
    return (cls.__name__ for cls in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    """The HTTP status an exception carries, wherever its library puts it."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            found = getattr(holder, name, None)
            if isinstance(found, int) and 100 <= found < 600:
                return found
    return None


def _named(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name, without a method's own object."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount]
    found = {**dict(zip(names, args, strict=False)), **kwargs}
    if len(args) > len(names):
        found["args"] = list(args[len(names) :])
    return {name: value for name, value in found.items() if name not in ("self", "cls")}
