"""OpenAI's request bodies, checked: what this engine does, and a plain no to the rest.

A field that would change the answer and is not supported is refused by name, never ignored; the
same field at a value that asks for nothing (``n: 1``) is fine.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from longpole_engine.sampling.penalties import Penalties
from longpole_engine.sampling.structured import Matcher
from longpole_engine.server.errors import ApiError
from longpole_engine.types import SamplingParams

_MAX_STOPS = 4
_MAX_TEXTS = 256
_COMPLETION_MAX_TOKENS = 16
"""OpenAI's default of ``/v1/completions``."""

_INERT = {"user", "metadata", "safety_identifier"}
"""Fields that ask the engine for nothing, whatever they hold."""

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "dimensions": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
}
"""Fields not supported, with the values (beside null) that ask for nothing."""

_Stop = Annotated[str, Field(min_length=1, max_length=1024)]
_Key = Annotated[str, Field(max_length=256)]
_TokenId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]
_Bias = Annotated[dict[_TokenId, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _StreamOptions(_Model):
    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class _Schema(_Model):
    name: _Key
    json_schema: dict[str, Any] | None = Field(None, alias="schema")
    description: str | None = None
    strict: bool | None = None


class _PlainFormat(_Model):
    type: Literal["text", "json_object"]


class _SchemaFormat(_Model):
    type: Literal["json_schema"]
    json_schema: _Schema


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
    stop: _Stop | Annotated[list[_Stop], Field(max_length=_MAX_STOPS)] | None = None
    n: int | None = Field(None, ge=1, le=128)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: _Bias | None = None
    response_format: _PlainFormat | _SchemaFormat | None = None
    # vLLM's names: the best of several, or of a beam search; never the end; less of what was said.
    best_of: int | None = Field(None, ge=1, le=128)
    use_beam_search: bool | None = None
    ignore_eos: bool | None = None
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
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

    @property
    def is_structured(self) -> bool:
        """Whether the answer must have a form."""
        return self.response_format is not None and self.response_format.type != "text"

    @property
    def form(self) -> dict[str, Any] | None:
        """The form asked for; ``None`` is any object."""
        asked = self.response_format
        return asked.json_schema.json_schema if isinstance(asked, _SchemaFormat) else None

    def sampling(self, max_tokens: int, vocab_size: int, grammar: Matcher | None) -> SamplingParams:
        """The engine's parameters; absent fields take OpenAI's defaults.

        Args:
            max_tokens: of the answer.
            vocab_size: number of tokens there are.
            grammar: of the form asked for.

        Raises:
            ApiError: 400, fields that contradict each other, or a token that does not exist.
        """
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        bias = {int(token): value for token, value in (self.logit_bias or {}).items()}
        if any(token >= vocab_size for token in bias):
            raise _wrong("logit_bias", f"token ids from 0 to {vocab_size - 1}")
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or 0,
            seed=self.seed,
            stop=tuple(stop),
            is_eos_ignored=bool(self.ignore_eos),
            min_p=self.min_p or 0.0,
            penalties=Penalties(
                self.frequency_penalty or 0.0,
                self.presence_penalty or 0.0,
                1.0 if self.repetition_penalty is None else self.repetition_penalty,
                bias,
            ),
            num_top=self._num_top(),
            num_choices=self.n or 1,
            best_of=max(self.n or 1, self.best_of or 1),
            is_beam=self._is_beam(),
            grammar=grammar,
        )
        self._check_together(params)
        return params

    @abstractmethod
    def _num_top(self) -> int | None:
        """Alternatives to list for each token; ``None``: no log-probabilities."""

    def _is_beam(self) -> bool:
        """The best of several without chance is a search."""
        is_search = self.temperature == 0 and (self.best_of or 1) > 1
        return is_search if self.use_beam_search is None else self.use_beam_search

    def _check_together(self, params: SamplingParams) -> None:
        if self.best_of is not None and self.best_of < params.num_choices:
            raise _wrong("best_of", "at least n")
        if self.stream and (params.is_beam or params.num_answers > params.num_choices):
            raise _wrong(
                "stream", "the best of several are known at the end only: not with best_of"
            )
        if not params.is_beam:
            return
        for name, is_asked in (
            ("temperature", bool(self.temperature)),
            ("top_p", params.top_p < 1),
            ("top_k", params.top_k > 0),
            ("min_p", params.min_p > 0),
            ("stop", bool(params.stop)),
            ("seed", params.seed is not None),
            ("logprobs", params.num_top is not None),
            ("response_format", self.is_structured),
            ("presence_penalty", bool(params.penalties.presence)),
            ("frequency_penalty", bool(params.penalties.frequency)),
            ("repetition_penalty", params.penalties.repetition != 1),
            ("logit_bias", bool(params.penalties.bias)),
        ):
            if is_asked:
                raise _wrong(name, "not together with a beam search")


def _wrong(param: str, what: str) -> ApiError:
    return ApiError(400, f"'{param}': {what}", param=param, code="invalid_value")


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


def plain(messages: Sequence[_Message]) -> list[dict[str, str]]:
    """Role and text of each message; ``developer`` is the newer word for ``system``."""
    found = []
    for message in messages:
        content = message.content
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        role = "system" if message.role == "developer" else message.role
        found.append({"role": role, "content": content})
    return found


class ChatRequest(_Generation):
    """Body of ``/v1/chat/completions``."""

    messages: Annotated[list[_Message], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)

    def _asked(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    def _num_top(self) -> int | None:
        if self.top_logprobs and not self.logprobs:
            raise _wrong("top_logprobs", "only together with logprobs")
        return self.top_logprobs or 0 if self.logprobs else None

    def plain_messages(self) -> list[dict[str, str]]:
        """Role and text of each message."""
        return plain(self.messages)


class CompletionRequest(_Generation):
    """Body of ``/v1/completions``: one prompt, as text or as token ids."""

    prompt: str | list[int] | Annotated[list[str], Field(min_length=1, max_length=1)]

    logprobs: int | None = Field(None, ge=0, le=20)

    def _num_top(self) -> int | None:
        return self.logprobs

    def _asked(self) -> int | None:
        return _COMPLETION_MAX_TOKENS if self.max_tokens is None else self.max_tokens


class EmbeddingRequest(_Model):
    """Body of ``/v1/embeddings``."""

    model: str
    input: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=_MAX_TEXTS)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[list[list[int]], Field(min_length=1, max_length=_MAX_TEXTS)]
    )
    encoding_format: Literal["float", "base64"] = "float"

    def texts(self) -> list[str | list[int]]:
        """The inputs, each as text or as tokens."""
        if isinstance(self.input, str):
            return [self.input]
        whole = [item for item in self.input if isinstance(item, int)]
        if whole:
            return [whole]
        return [item for item in self.input if not isinstance(item, int)]


class TokenizeRequest(_Model):
    """Body of ``/tokenize``: a text, or messages through the model's template."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[_Message], Field(min_length=1)] | None = None


_Form = TypeVar("_Form", bound=_Model)


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
