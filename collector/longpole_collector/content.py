"""What people wrote and what models answered does not belong in a latency store.

Attributes known to hold prompts, answers, tool arguments or documents are dropped by default;
their length and a keyed hash stay, so that equal values can be told from different ones. Their
owner may have them redacted or kept, project by project. Credentials and URL queries are dropped
always, ids of users and sessions become pseudonyms always, long values are cut. This is the one
list of such keys, for every dialect.
"""

import hmac
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from longpole.errors import Unreachable
from longpole.vocab import Span
from longpole_collector.decode.raw import RawEvent, RawLink, Value, text
from longpole_collector.health import Health
from longpole_collector.keys import DEFAULT_PROJECT
from longpole_collector.redact import Redactor
from longpole_collector.settings import PROJECTS_FOLDER, ProjectSettings, load_settings

MAX_VALUE_CHARS: Final = 16 * 1024
MAX_ATTRIBUTES: Final = 256
CUT_FLAG: Final = "attributes_cut"
KEY_FILE: Final = "pseudonym.key"
Content = Literal["drop", "redact", "keep"]
"""What is done with prompts, answers, tool arguments and documents."""

_KEY_BYTES: Final = 32
_HASH_BYTES: Final = 8
_MAX_PSEUDONYMS: Final = 4096
_MARGIN_CHARS: Final = 4096
_REDACT_CHARS: Final = MAX_VALUE_CHARS + _MARGIN_CHARS
"""Rules see this much of a value, so that what begins in the part that stays is seen whole."""
_PSEUDONYM: Final = re.compile(r"h:[0-9a-f]{16}")
_CONTENT_PREFIXES: Final = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.tool.definitions",
    "gen_ai.tool.args",
    "gen_ai.completion",
    "gen_ai.content.",
    "gen_ai.event.content",
    "gen_ai.retrieval.documents",
    "gen_ai.retrieval.query",
    "gen_ai.evaluation.explanation",
    "gen_ai.headers",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompts",
    "llm.completions",
    "llm.choices",
    "llm.tools",
    "llm.function_call",
    "llm.prompt_template.template",
    "llm.prompt_template.variables",
    "llm.openai.messages",
    "llm.openai.choices",
    "llm.anthropic.messages",
    "llm.anthropic.content",
    "input.value",
    "output.value",
    "retrieval.documents",
    "reranker.query",
    "reranker.input_documents",
    "reranker.output_documents",
    "embedding.embeddings",
    "embedding.text",
    "tool.parameters",
    "tool_call.function.arguments",
    "message.content",
    "document.content",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "langfuse.observation.input",
    "langfuse.observation.output",
    "langfuse.observation.metadata.response_format",
    "langfuse.trace.input",
    "langfuse.trace.output",
    "ai.prompt",
    "ai.documents",
    "ai.schema",
    "ai.response.text",
    "ai.response.object",
    "ai.response.reasoning",
    "ai.response.toolCalls",
    "ai.response.files",
    "ai.response.providerMetadata",
    "ai.result.",
    "ai.toolCall.args",
    "ai.toolCall.result",
    "ai.value",
    "ai.embedding",
    "logfire.json_schema",
    "logfire.metrics",
    "mlflow.spanInputs",
    "mlflow.spanOutputs",
    "mlflow.traceInputs",
    "mlflow.traceOutputs",
    "mlflow.chunk.value",
    "mlflow.chat.tools",
    "langsmith.inputs",
    "langsmith.outputs",
    "pydantic_ai.all_messages",
    "all_messages",
    "final_result",
    "tool_arguments",
    "tool_response",
    "model_request_parameters",
    "request_data",
    "response_data",
    "hidden_params",
    "extra_headers",
)
_PROMPT: Final = re.compile(r"gen_ai\.prompt($|\.\d+($|\.))")
"""``gen_ai.prompt`` and ``gen_ai.prompt.0.content``, but not ``gen_ai.prompt.version``."""
_SECRET: Final = re.compile(
    r"(^|[._-])(authorization|cookie|set[_-]cookie|api[_-]?key|password|secret)$", re.IGNORECASE
)
_URLS: Final = frozenset(("url.full", "http.url", "http.target"))
_PERSON: Final = re.compile(
    r"(^|[._-])((end[._]?)?user|session|conversation|customer)[._]?(id|email)$"
    r"|(^|\.)(enduser\.pseudo\.id|user\.(name|full_name))$"
    r"|^(gen_ai\.request|llm|mlflow\.trace)\.user$|^mlflow\.trace\.session$"
    r"|^langsmith\.metadata\.thread_id$",
    re.IGNORECASE,
)
"""Ids of users and sessions, in the words of every dialect."""
_MESSAGE_EVENTS: Final = ("gen_ai.",)
_MESSAGE_KEYS: Final = frozenset(
    ("content", "message", "messages", "tool_calls", "arguments", "body")
)


class Action(Enum):
    """What is done with an attribute."""

    KEEP = 0
    """Stored as it is."""
    CONTENT = 1
    """Dropped, redacted or kept as the policy says."""
    SECRET = 2
    """Dropped."""
    URL = 3
    """Stored without its query."""
    PERSON = 4
    """Stored as a pseudonym."""


@lru_cache(maxsize=4096)
def action(key: str) -> Action:
    """What is done with the attribute of that key, of a span, an event or a link.

    A key of a resource (``resource.`` before it) is judged by the rest of it.
    """
    key = key.removeprefix("resource.")
    if _SECRET.search(key) or key == "url.query":
        return Action.SECRET
    if key.endswith((".length", ".hash")):
        return Action.KEEP
    if key.startswith(_CONTENT_PREFIXES) or _PROMPT.match(key):
        return Action.CONTENT
    if _PERSON.search(key):
        return Action.PERSON
    return Action.URL if key in _URLS else Action.KEEP


@dataclass(frozen=True)
class Policy:
    """What a project stores of what people said and who they are."""

    content: Content = "drop"
    key: bytes = field(default_factory=lambda: os.urandom(_KEY_BYTES), repr=False)
    """Key of the hashes and pseudonyms; a random one, for what is kept in memory only."""
    rules: tuple[str, ...] = ()
    """The owner's expressions for ``redact``, see :mod:`longpole_collector.redact`."""


class Scrubber:
    """Cleans spans by a policy; used by one thread at a time."""

    pseudonym: Callable[[str], str]
    """The pseudonym of a user's or session's id: ``h:`` and 16 hex digits.

    Equal ids have equal ones within a project. Empty text and what is a pseudonym already stay,
    so that an export can be imported again; quotes around an id (JSON) do not count.
    """

    def __init__(self, policy: Policy, health: Health) -> None:
        """``health`` counts values dropped, redacted and cut (``values_dropped``).

        Raises:
            UsageError: a redaction rule cannot be used.
        """
        self.policy = policy
        self._health = health
        self._redactor = Redactor(policy.rules)
        self.pseudonym = lru_cache(_MAX_PSEUDONYMS)(self._pseudonym)

    def digest(self, value: str) -> str:
        """The keyed hash of a dropped value, 16 hex digits (HMAC-SHA256, RFC 2104)."""
        message = value.encode(errors="surrogatepass")
        return hmac.digest(self.policy.key, message, "sha256")[:_HASH_BYTES].hex()

    def clean(
        self, span: Span, events: Sequence[RawEvent] = (), links: Sequence[RawLink] = ()
    ) -> Span:
        """The span as it may be stored, its events and links within as JSON text.

        A content value that is dropped leaves ``<key>.length``, its characters, and
        ``<key>.hash``. The attributes given are changed in place.

        Args:
            span: a canonical span; its attributes are text.
            events: its events as sent.
            links: its links as sent.
        """
        if self._clean(span.attributes, length=str):
            span.flags.append(CUT_FLAG)
        if span.conversation_id:
            span = span._replace(conversation_id=self.pseudonym(span.conversation_id))
        if not events and not links:
            return span
        for event in events:
            self._clean(event.attributes, is_message=event.name.startswith(_MESSAGE_EVENTS))
        for link in links:
            self._clean(link.attributes)
        return span._replace(
            events=_json([event._asdict() for event in events]),
            links=_json([link._asdict() for link in links]),
        )

    def _clean(
        self,
        attributes: dict[str, Any],
        *,
        is_message: bool = False,
        length: Callable[[int], str | int] = int,
    ) -> int:
        """Clean attributes in place; returns how many were cut."""
        names = tuple(attributes)
        num_cut = len(names[MAX_ATTRIBUTES:])
        for key in names[MAX_ATTRIBUTES:]:
            del attributes[key]
        for key in names[:MAX_ATTRIBUTES]:
            found = Action.CONTENT if is_message and key in _MESSAGE_KEYS else action(key)
            value = attributes[key]
            if found is Action.SECRET:
                del attributes[key]
                self._health.add("values_dropped", "secret")
                continue
            if found is Action.CONTENT and self.policy.content == "drop":
                said = text(attributes.pop(key))
                attributes[f"{key}.length"] = length(len(said))
                attributes[f"{key}.hash"] = self.digest(said)
                self._health.add("values_dropped", "content")
                continue
            if found is Action.CONTENT and self.policy.content == "redact":
                value, is_cut = self._redact(value)
                num_cut += is_cut
            elif found is Action.PERSON:
                value = self.pseudonym(text(value))
            elif found is Action.URL and isinstance(value, str):
                value = value.partition("?")[0]
            if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
                value = value[:MAX_VALUE_CHARS]
                num_cut += 1
            attributes[key] = value
        if num_cut:
            self._health.add("values_dropped", "too_long", num_cut)
        return num_cut

    def _redact(self, value: Value) -> tuple[Value, bool]:
        """The value without what the rules find, and whether its end was cut off."""
        said = text(value)
        redacted = self._redactor.clean(said[:_REDACT_CHARS])
        if redacted != said[:_REDACT_CHARS]:
            self._health.add("values_dropped", "redacted")
        elif len(said) <= MAX_VALUE_CHARS:
            return value, False
        if len(said) > _REDACT_CHARS:
            redacted = redacted[:-_MARGIN_CHARS]
        return redacted[:MAX_VALUE_CHARS], len(said) > MAX_VALUE_CHARS

    def _pseudonym(self, value: str) -> str:
        name = value.strip('"')
        if not name or _PSEUDONYM.fullmatch(name):
            return name
        return f"h:{self.digest(name)}"


def make_policy(folder: Path, own: ProjectSettings) -> Policy:
    """The policy of the project that lies in a folder, by its settings.

    Raises:
        Unreachable: the key of its pseudonyms cannot be read or made.
    """
    return Policy(own.content, load_key(folder), own.redact)


def policy_of(folder: Path) -> Policy:
    """The policy of the project that lies in a folder, for who works there without a collector.

    Raises:
        UsageError: the configuration cannot be used.
        Unreachable: the key of its pseudonyms cannot be read or made.
    """
    name = folder.name if folder.parent.name == PROJECTS_FOLDER else DEFAULT_PROJECT
    return make_policy(folder, load_settings().project(name))


def load_key(folder: Path) -> bytes:
    """The key of a data folder's pseudonyms; made when it has none, for its owner's eyes only.

    Raises:
        Unreachable: the file cannot be read or made, or holds no key.
    """
    path = folder / KEY_FILE
    draft = folder / f"{KEY_FILE}.{os.getpid()}"
    try:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            draft.write_bytes(os.urandom(_KEY_BYTES))
            with suppress(FileExistsError):  # another process was first
                path.hardlink_to(draft)
            draft.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise Unreachable(f"cannot read or make {path}: {error.strerror}") from error
    if len(key) != _KEY_BYTES:
        raise Unreachable(
            f"{path} has {len(key)} bytes, not {_KEY_BYTES}: bring it back from a backup, or "
            "remove it (users and sessions then get new pseudonyms)"
        )
    return key


def _json(value: list[dict[str, Any]]) -> str | None:
    if not value:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=text)
