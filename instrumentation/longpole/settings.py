"""The settings of the SDK: table ``[sdk]`` of ``longpole.toml``.

Precedence: argument of ``init`` > ``LONGPOLE_SDK_*`` > ``OTEL_*`` > file > default.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from longpole import health
from longpole.errors import UsageError

if TYPE_CHECKING:
    from longpole.config import Scalar

DEFAULTS: "dict[str, Scalar | None]" = {
    "service": None,
    "endpoint": "http://127.0.0.1:4318",
    "queue_size": 2048,
    "batch_size": 512,
    "export_delay_s": 1.0,
    "timeout_s": 10.0,
    "propagate": "private",
    "ask_usage": True,
    "chunk_offsets": True,
    "hash_key": None,
    "prefix_hashes": False,
    "capture_content": False,
    "redact_pattern": None,
}
"""Every key with its default; the meanings stand in :class:`Settings`."""

PROPAGATE = ("private", "always", "never")

_OTEL: dict[str, tuple[tuple[str, float], ...]] = {
    "service": (("OTEL_SERVICE_NAME", 1),),
    "endpoint": (("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", 1), ("OTEL_EXPORTER_OTLP_ENDPOINT", 1)),
    "queue_size": (("OTEL_BSP_MAX_QUEUE_SIZE", 1),),
    "batch_size": (("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1),),
    "export_delay_s": (("OTEL_BSP_SCHEDULE_DELAY", 1e-3),),
    "timeout_s": (("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", 1), ("OTEL_EXPORTER_OTLP_TIMEOUT", 1)),
    "capture_content": (("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", 1),),
    "hash_key": (("LONGPOLE_PREFIX_KEY", 1),),
}
"""Our key -> other variables for it, OpenTelemetry's mostly, with the factor to our unit."""

_WORDS = {
    "true": True,
    "1": True,
    "span_only": True,
    "span_and_event": True,
    "false": False,
    "0": False,
    "no_content": False,
    "event_only": False,
}
"""OpenTelemetry's words for whether spans carry content; longpole has no events for it."""


@dataclass(frozen=True)
class Settings:
    """What the SDK runs with.

    Attributes:
        service: ``service.name`` of the resource; ``None`` leaves it to OpenTelemetry.
        endpoint: OTLP/HTTP base URL of the collector, or the full URL of its traces door.
        queue_size: finished spans that wait for export at most; more are dropped and counted.
        batch_size: spans in one export at most.
        export_delay_s: seconds between two exports.
        timeout_s: seconds one export may take, its retries included.
        propagate: which hosts are sent the trace id: ``private`` (loopback, private networks),
            ``always`` or ``never``.
        ask_usage: ask for token counts in streams when the application does not say.
        chunk_offsets: send the arrival time of each content chunk.
        hash_key: key for hashes of prompts (also ``LONGPOLE_PREFIX_KEY``); ``None`` is a random
            key per process, so hashes of two processes do not compare.
        prefix_hashes: hash the prompts of wrapped clients' calls too.
        capture_content: send prompts, answers, tool arguments and results, redacted.
        redact_pattern: a regular expression of what must not be sent, besides longpole's own
            rules; repeats in it should be bounded.
        redact: a function that gets each text after the rules and returns what may be sent.
        is_endpoint_stated: somebody chose ``endpoint`` for longpole; it is not the default and
            not OpenTelemetry's own.
    """

    service: str | None
    endpoint: str
    queue_size: int
    batch_size: int
    export_delay_s: float
    timeout_s: float
    propagate: str
    ask_usage: bool
    chunk_offsets: bool
    hash_key: str | None = field(repr=False)
    prefix_hashes: bool
    capture_content: bool
    redact_pattern: str | None
    redact: Callable[[str], str] | None = None
    is_endpoint_stated: bool = False

    @property
    def traces_url(self) -> str:
        """The URL spans are sent to."""
        is_full = self.endpoint == os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        if is_full or self.endpoint.endswith("/v1/traces"):
            return self.endpoint
        return self.endpoint.rstrip("/") + "/v1/traces"


def load(*, redact: Callable[[str], str] | None = None, **arguments: "Scalar | None") -> Settings:
    """The settings, merged; an argument that is ``None`` counts as not given.

    Args:
        redact: see :class:`Settings`; it cannot be said elsewhere.
        **arguments: by key of :data:`DEFAULTS`.

    Raises:
        UsageError: an unknown key, or a value of the wrong type.
    """
    from difflib import get_close_matches

    from longpole import config  # it reads files; nobody needs it before the first span

    for key in arguments:
        if key not in DEFAULTS:
            close = get_close_matches(key, DEFAULTS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(DEFAULTS)}"
            raise UsageError(f"init() knows no '{key}': {hint}")
    merged = config.settings("sdk", DEFAULTS)
    values: dict[str, Any] = {}
    for key, setting in merged.items():
        otel = None if setting.source == "environment" else _from_otel(key)
        values[key] = otel if otel is not None else setting.value
    given = {key: value for key, value in arguments.items() if value is not None}
    values.update(given)
    is_stated = "endpoint" in given or (
        merged["endpoint"].source != "default" and values["endpoint"] == merged["endpoint"].value
    )
    return replace(_checked(values, is_stated), redact=redact)


def defaults() -> Settings:
    """The settings with nothing set anywhere."""
    return _checked(DEFAULTS, is_endpoint_stated=False)


def current() -> Settings:
    """The settings in force, read once; a broken configuration gives the defaults, with a warning.

    Never raises: it is called on the way of an application's model call.
    """
    global _current  # noqa: PLW0603 - read once per process
    if _current is None:
        try:
            _current = load()
        except (UsageError, OSError) as error:
            health.warn_once("settings", f"longpole runs with its defaults: {error}")
            _current = defaults()
    return _current


def put(settings: Settings | None) -> None:
    """Make ``settings`` the ones in force; ``None`` reads them again at next use."""
    global _current  # noqa: PLW0603 - as above
    _current = settings


_current: Settings | None = None


def _from_otel(key: str) -> "Scalar | None":
    """OpenTelemetry's value for our key, in our unit; ``None`` if unset or no number."""
    for variable, factor in _OTEL.get(key, ()):
        text = os.environ.get(variable)
        if not text:
            continue
        default = DEFAULTS[key]
        if isinstance(default, bool):
            if text.lower() in _WORDS:
                return _WORDS[text.lower()]
            health.warn_once(variable, f"longpole does not know {variable}={text}: it is ignored")
            continue
        if not isinstance(default, int | float):
            return text
        try:
            return type(default)(float(text) * factor)
        except ValueError:
            continue
    return None


def _checked(values: Mapping[str, Any], is_endpoint_stated: bool) -> Settings:
    for known in fields(Settings):
        if known.name not in values:
            continue
        value, default = values[known.name], DEFAULTS[known.name]
        kinds: tuple[type, ...] = (str, type(None)) if default is None else (type(default),)
        if float in kinds:
            kinds = (*kinds, int)
        if not isinstance(value, kinds) or isinstance(value, bool) != isinstance(default, bool):
            raise UsageError(f"[sdk] {known.name}: {value!r} is not a {kinds[0].__name__}")
        if kinds[0] in (int, float) and isinstance(value, int | float) and value <= 0:
            raise UsageError(f"[sdk] {known.name}: {value} is not above 0")
    if values["propagate"] not in PROPAGATE:
        raise UsageError(
            f"[sdk] propagate: {values['propagate']!r} is none of {', '.join(PROPAGATE)}"
        )
    if values["redact_pattern"] is not None:
        _check_pattern(values["redact_pattern"])
    return Settings(**values, is_endpoint_stated=is_endpoint_stated)


def _check_pattern(pattern: str) -> None:
    try:
        is_empty_match = re.search(pattern, "") is not None
    except re.error as error:
        raise UsageError(f"[sdk] redact_pattern: '{pattern}': {error}") from error
    if is_empty_match:
        raise UsageError(f"[sdk] redact_pattern: '{pattern}' matches the empty text: narrow it")
