"""What a library says about a call, read from its spans by the names it uses."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

_NATIVE = "com.anthropic.sdk"
_HTTP = "opentelemetry.instrumentation.httpx"
LATE_MS, LATE_SHARE = 15.0, 0.05
"""A time is right within 15 ms and 5 %: the applications run on a busy machine."""

_KEYS = {
    "input": ("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
    "cached": (
        "gen_ai.usage.cache_read.input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "cache write": (
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "output": ("gen_ai.usage.output_tokens", "llm.token_count.completion"),
    "reasoning": (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
    "ttft s": (
        "longpole.time_to_first_content",
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.server.time_to_first_token",
    ),
    "tpot s": ("longpole.time_per_output_token", "gen_ai.server.time_per_output_token"),
}
_JSON_KEYS = ("langfuse.observation.usage_details", "gen_ai.usage.raw")
_IN_JSON = {
    "input": ("prompt_tokens", "input_tokens", "input"),
    "cached": ("cached_tokens", "input_cached_tokens", "prompt_tokens_details.cached_tokens"),
    "output": ("completion_tokens", "output_tokens", "output"),
    "reasoning": ("reasoning_tokens", "completion_tokens_details.reasoning_tokens"),
}
_FIRST_EVENTS = ("First Token Stream Event", "gen_ai.content.completion.chunk")


class Told(NamedTuple):
    """One case: what the application did, what the provider did, what the spans say."""

    took: dict[str, Any]
    truth: list[dict[str, Any]]
    """One entry per request, in order."""

    @property
    def spans(self) -> list[dict[str, Any]]:
        """The library's own spans of the call."""
        return [
            span
            for span in self.took["spans"]
            if not span["scope"].startswith((_NATIVE, _HTTP)) and span["scope"] != "httpx"
        ]

    @property
    def all_spans(self) -> list[dict[str, Any]]:
        """Also those of the client and its HTTP library."""
        spans: list[dict[str, Any]] = self.took["spans"]
        return spans

    @property
    def attributes(self) -> dict[str, Any]:
        """Of all its spans; later ones win."""
        return {key: value for span in self.spans for key, value in span["attributes"].items()}

    @property
    def true_ttft_ms(self) -> float:
        """From the application's call to the first content's leaving the provider."""
        first: int = self.truth[-1]["content_ns"][0]
        return float(first - self.took["start_ns"]) / 1e6

    @property
    def longest_ms(self) -> float:
        """The longest of its spans."""
        return max(float(span["end_ns"] - span["start_ns"]) / 1e6 for span in self.spans)

    def number(self, what: str) -> tuple[float | None, str]:
        """A fact and a note on where it stands."""
        attributes = self.attributes
        for key in _KEYS[what]:
            value = attributes.get(key)
            if isinstance(value, int | float):
                return float(value), ""
        for holder in _JSON_KEYS:
            with_names = _flat(attributes.get(holder))
            for name in _IN_JSON.get(what, ()):
                if name in with_names:
                    return with_names[name], "in JSON"
        return None, ""

    def ttft_ms(self) -> tuple[float | None, str]:
        """Time to the first content as the library tells it."""
        seconds, _ = self.number("ttft s")
        if seconds is not None:
            return seconds * 1e3, ""
        begun = self.attributes.get("langfuse.observation.completion_start_time")
        if begun:
            moment = datetime.fromisoformat(str(begun).strip('"'))
            return (moment.timestamp() - self.spans[0]["start_ns"] / 1e9) * 1e3, ""
        for span in self.spans:
            for name, at_ns in span["events"]:
                if name in _FIRST_EVENTS:
                    return (at_ns - span["start_ns"]) / 1e6, "event"
        return None, ""

    def is_error(self) -> bool:
        """Some span of the call says that it failed."""
        return any(span["status"] == "ERROR" for span in self.spans)


def _flat(text: Any) -> dict[str, float]:
    if not isinstance(text, str) or not text.startswith("{"):
        return {}
    found: dict[str, float] = {}
    for key, value in json.loads(text).items():
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for name, number in inner:
            if isinstance(number, int | float):
                found[key if name is None else f"{key}.{name}"] = float(number)
                found.setdefault(name or key, float(number))
    return found


def is_near(value_ms: float, true_ms: float) -> bool:
    """Whether a time is right."""
    return abs(value_ms - true_ms) <= LATE_MS + LATE_SHARE * true_ms
