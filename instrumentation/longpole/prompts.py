"""Facts about prompts and routes for the model calls inside a block. Never any text.

Of a prompt only keyed hashes and lengths leave the process, so two calls can be seen to share a
prefix, and nobody without the key can guess the text from its hash. The key is the setting
``hash_key`` (``LONGPOLE_PREFIX_KEY``), one for each tenant. Without one each process makes a
random key: its hashes compare among themselves and with no other process's.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from opentelemetry import context as otel
from opentelemetry.context import Context

from longpole import health, settings
from longpole.call import AttributeValue
from longpole.context import attached, call_facts, with_facts
from longpole.vocab import keys

if TYPE_CHECKING:
    from longpole.prefix import Keyed, Segment, Tokenize

TOOLS = "tools"
"""The segment whose order does not change what it means."""
MESSAGES = "messages"
"""The segment that grows with the conversation."""
_random_key = os.urandom(32)


@contextmanager
def prompt(
    version: str | None = None,
    segments: "Mapping[str, Segment] | None" = None,
    *,
    volatile: Collection[str] = (),
    model: str = "",
    tokenize: "Tokenize | None" = None,
) -> Iterator[None]:
    """The model calls inside use this prompt.

    Args:
        version: prompt version; every span inside inherits it.
        segments: name -> text or list of items, in the order they are sent. Usual names: tools,
            system, schema, examples, reference, messages. Model calls inside get each one's keyed
            hash and its length in characters (of ``tools`` given as a list also a hash that is
            the same in any order), and the chain of keyed hashes of the prompt's prefixes.
        volatile: names of segments that change from call to call. The stable prefix, which a
            provider can cache, ends before the first of them; its hash is
            ``longpole.prompt.prefix_hash``.
        model: the model; chains of two models never compare.
        tokenize: text -> token ids. With it the chain is over blocks of 64 tokens, as an engine's
            prefix cache cuts them; without it over blocks of 256 bytes.
    """
    calls = _guarded(segments or {}, volatile, model, tokenize)
    spans: dict[str, AttributeValue] = {} if version is None else {keys.PROMPT_VERSION: version}
    with attached(with_facts(otel.get_current(), spans=spans, calls=calls)):
        yield


def prompt_facts(
    segments: "Mapping[str, Segment | None]",
    *,
    model: str = "",
    context: Context | None = None,
) -> dict[str, AttributeValue]:
    """The same facts of one request, for who sees it on its way: a wrapped client.

    Empty unless the setting ``prefix_hashes`` is on, and where the application described the
    prompt itself (:func:`prompt`). Never raises.

    Args:
        segments: the request's own objects by segment, in the order they are sent; ``None`` and
            empty ones are left out.
        model: the model asked for.
        context: the context of the call; default is the current one.
    """
    if not settings.current().prefix_hashes or keys.PROMPT_CHAIN in call_facts(context):
        return {}
    found = {name: segment for name, segment in segments.items() if segment}
    return _guarded(found, (MESSAGES,), model, None)


def route_inputs(**inputs: AttributeValue) -> AbstractContextManager[None]:
    """The deterministic inputs of the routing decision behind the model calls inside."""
    return _routed({keys.ROUTE_INPUT_PREFIX + name: value for name, value in inputs.items()})


def route_decision(
    chosen: str,
    /,
    *,
    version: str | None = None,
    candidates: Sequence[str] | None = None,
    **inputs: AttributeValue,
) -> AbstractContextManager[None]:
    """The routing decision behind the model calls inside, so that it can be made again.

    Args:
        chosen: what was chosen: a model, a route, a tier.
        version: version of the rules that chose; equal version and inputs must choose the same.
        candidates: what could have been chosen.
        **inputs: what the rules looked at.
    """
    facts: dict[str, AttributeValue] = {keys.ROUTE_CHOSEN: chosen}
    if version is not None:
        facts[keys.ROUTE_POLICY_VERSION] = version
    if candidates is not None:
        facts[keys.ROUTE_CANDIDATES] = list(candidates)
    named = {keys.ROUTE_INPUT_PREFIX + name: value for name, value in inputs.items()}
    return _routed({**facts, **named})


@contextmanager
def _routed(facts: Mapping[str, AttributeValue]) -> Iterator[None]:
    with attached(with_facts(otel.get_current(), calls=facts)):
        yield


def _guarded(
    segments: "Mapping[str, Segment]",
    volatile: Collection[str],
    model: str,
    tokenize: "Tokenize | None",
) -> dict[str, AttributeValue]:
    try:
        return _facts(segments, volatile, model, tokenize) if segments else {}
    except Exception as error:  # noqa: BLE001 - counted; the calls go on without these facts
        health.swallow("prompt", error)
        return {}


def _facts(
    segments: "Mapping[str, Segment]",
    volatile: Collection[str],
    model: str,
    tokenize: "Tokenize | None",
) -> dict[str, AttributeValue]:
    from longpole import prefix  # with hashlib it is too heavy for those who hash nothing

    keyed = _keyed(settings.current().hash_key)
    facts: dict[str, AttributeValue] = {keys.PROMPT_KEY_ID: keyed.key_id}
    prompt_texts: list[str] = []
    stable: list[str] = []
    is_prefix = True
    for name, segment in segments.items():
        texts = prefix.texts_of(segment)
        prompt_texts.extend(texts)
        key, digest = keys.PROMPT_SEGMENT_PREFIX + name, keyed.hex(prefix.joined(texts))
        facts[f"{key}.hash"] = digest
        facts[f"{key}.length"] = sum(map(len, texts))
        if name == TOOLS and isinstance(segment, list | tuple):
            facts[f"{key}.set_hash"] = keyed.hex(prefix.joined(sorted(texts)))
        is_prefix = is_prefix and name not in volatile
        if is_prefix:
            stable.append(digest)
    if stable:
        facts[keys.PREFIX_HASH] = keyed.hex("".join(stable).encode())
    chain = prefix.chain(keyed, prefix.joined(prompt_texts), model, tokenize)
    facts[keys.PROMPT_CHAIN] = chain.hashes
    facts[keys.PROMPT_NUM_BLOCKS] = chain.num_blocks
    facts[keys.PROMPT_BLOCK] = chain.unit
    return facts


@lru_cache(maxsize=4)
def _keyed(chosen: str | None) -> "Keyed":
    from longpole.prefix import Keyed

    return Keyed(_random_key if chosen is None else chosen.encode())
