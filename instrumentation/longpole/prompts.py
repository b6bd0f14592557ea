"""Facts about prompts and routes for the model calls inside a block. Never any text.

Of a prompt's segments only a keyed hash and a length leave this file, so two calls can be seen
to share a prefix, and nobody can guess the text from its hash.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as otel

from longpole import health, settings
from longpole.call import AttributeValue
from longpole.context import attached, with_facts
from longpole.vocab import keys

_HASH_DIGITS = 32
_random_key = os.urandom(32)


@contextmanager
def prompt(
    version: str | None = None,
    segments: Mapping[str, str] | None = None,
    *,
    volatile: Collection[str] = (),
) -> Iterator[None]:
    """The model calls inside use this prompt.

    Args:
        version: prompt version; every span inside inherits it.
        segments: name -> text, in the order they are sent. Model calls inside get each one's
            keyed hash and its length in characters.
        volatile: names of segments that change from call to call. The stable prefix, which a
            provider can cache, ends before the first of them; its hash is
            ``longpole.prompt.prefix_hash``.
    """
    calls: dict[str, AttributeValue] = {}
    try:
        calls = _segment_facts(segments or {}, volatile)
    except Exception as error:  # noqa: BLE001 - counted; the block runs without these facts
        health.swallow("prompt", error)
    spans: dict[str, AttributeValue] = {} if version is None else {keys.PROMPT_VERSION: version}
    with attached(with_facts(otel.get_current(), spans=spans, calls=calls)):
        yield


@contextmanager
def route_inputs(**inputs: AttributeValue) -> Iterator[None]:
    """The deterministic inputs of the routing decision behind the model calls inside."""
    calls = {keys.ROUTE_INPUT_PREFIX + name: value for name, value in inputs.items()}
    with attached(with_facts(otel.get_current(), calls=calls)):
        yield


def _segment_facts(
    segments: Mapping[str, str], volatile: Collection[str]
) -> dict[str, AttributeValue]:
    facts: dict[str, AttributeValue] = {}
    stable: list[str] = []
    is_prefix = True
    for name, text in segments.items():
        digest = _digest(text)
        facts[f"{keys.PROMPT_SEGMENT_PREFIX}{name}.hash"] = digest
        facts[f"{keys.PROMPT_SEGMENT_PREFIX}{name}.length"] = len(text)
        is_prefix = is_prefix and name not in volatile
        if is_prefix:
            stable.append(digest)
    if stable:
        facts[keys.PREFIX_HASH] = _digest("".join(stable))
    return facts


def _digest(text: str) -> str:
    """HMAC-SHA-256, cut to 128 bits; the key is the setting ``hash_key``, else random."""
    import hmac  # with hashlib it is too heavy for those who hash nothing

    chosen = settings.current().hash_key
    key = _random_key if chosen is None else chosen.encode()
    return hmac.digest(key, text.encode(errors="surrogatepass"), "sha256").hex()[:_HASH_DIGITS]
