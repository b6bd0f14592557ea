"""OpenAI's request bodies, checked: what this engine does, and a plain no to the rest.

A field that would change the answer and is not supported is refused by name, never ignored; the
same field at a value that asks for nothing (``n: 1``) is fine.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from longpole_engine.server.errors import ApiError
from longpole_engine.types import SamplingParams

_MAX_STOPS = 4
_COMPLETION_MAX_TOKENS = 16
"""OpenAI's default of ``/v1/completions``."""

_INERT = {"user", "metadata", "safety_identifier"}
"""Fields that ask the engine for nothing, whatever they hold."""

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
}
"""Fields not supported, with the values (beside null) that ask for nothing."""

_Text = Annotated[str, Field(min_length=1)]
_Key = Annotated[str, Field(max_length=256)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _StreamOptions(_Model):
    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class _Generation(_Model):
    """What both doors share."""

    model: str
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: _Text | Annotated[list[_Text], Field(max_length=_MAX_STOPS)] | None = None
    ignore_eos: bool | None = None
    # vLLM's names: who goes first, and whose cached prefixes are shared; OpenAI's: which belong
    # together.
    priority: int | None = Field(None, ge=0, le=100)
    cache_salt: _Key | None = None
    prompt_cache_key: _Key | None = None

    def limit(self, num_prompt: int, max_total: int) -> int:
        """Tokens the answer may have.

        Raises:
            ApiError: prompt, or prompt and answer, exceed ``max_total``.
        """
        room = max_total - num_prompt
        asked = self._asked()
        if room < 1 or (asked or 0) > room:
            raise ApiError(
                400,
                f"the prompt has {num_prompt} tokens and the answer may have {asked or 1}: "
                f"this model's limit for both is {max_total}",
                param="max_tokens" if room >= 1 else "prompt",
                code="context_length_exceeded",
            )
        return room if asked is None else asked

    def _asked(self) -> int | None:
        return self.max_tokens

    def sampling(self, max_tokens: int) -> SamplingParams:
        """The engine's parameters; absent fields take OpenAI's defaults."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or 0,
            seed=self.seed,
            stop=tuple(stop),
            is_eos_ignored=bool(self.ignore_eos),
        )


class _Part(_Model):
    type: Literal["text"]
    text: str


class _Message(_Model):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]
    # OpenAI's client sends an earlier answer back with its empty fields.
    name: None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    annotations: None = None
    audio: None = None


class ChatRequest(_Generation):
    """Body of ``/v1/chat/completions``."""

    messages: Annotated[list[_Message], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)

    def _asked(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    def plain_messages(self) -> list[dict[str, str]]:
        """Role and text of each message; ``developer`` is the newer word for ``system``."""
        plain = []
        for message in self.messages:
            content = message.content
            if not isinstance(content, str):
                content = "".join(part.text for part in content)
            role = "system" if message.role == "developer" else message.role
            plain.append({"role": role, "content": content})
        return plain


class CompletionRequest(_Generation):
    """Body of ``/v1/completions``: one prompt, as text or as token ids."""

    prompt: str | list[int] | Annotated[list[str], Field(min_length=1, max_length=1)]

    def _asked(self) -> int | None:
        return _COMPLETION_MAX_TOKENS if self.max_tokens is None else self.max_tokens


_Form = TypeVar("_Form", bound=_Generation)


def parse(kind: type[_Form], body: bytes) -> _Form:
    """Check a body against its form.

    Raises:
        ApiError: 400, naming the first field that is wrong or not supported.
    """
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ApiError(400, "the body is not a JSON object")
    known = {name: value for name, value in document.items() if not _asks_nothing(name, value)}
    try:
        return kind.model_validate(known)
    except ValidationError as error:
        raise _refusal(max(error.errors(include_url=False), key=_helpfulness)) from error


def _helpfulness(error: Any) -> tuple[bool, int]:
    """In a union every branch complains: not of the wrong type, and deep inside, helps most."""
    return not error["type"].endswith("_type"), len(error["loc"])


def _asks_nothing(name: str, value: Any) -> bool:
    if name in _INERT:
        return True
    return name in _NEUTRAL and (value is None or value in _NEUTRAL[name])


def _refusal(error: Any) -> ApiError:
    """An error of pydantic's as a sentence of ours; names of union branches are left out."""
    where = [
        str(part) for part in error["loc"] if str(part).isidentifier() or isinstance(part, int)
    ]
    param = where[0] if where else None
    if error["type"] == "extra_forbidden":
        name = ".".join(where)
        allowed = _NEUTRAL.get(name)
        hint = f"; without it or at {allowed[0]!r} the request works" if allowed else ""
        return ApiError(
            400, f"'{name}' is not supported{hint}", param=param, code="unsupported_parameter"
        )
    code = "missing_required_parameter" if error["type"] == "missing" else "invalid_value"
    return ApiError(400, f"'{'.'.join(where)}': {error['msg']}", param=param, code=code)
