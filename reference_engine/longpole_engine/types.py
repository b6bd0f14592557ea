"""What crosses the engine's border: a request in, pieces of text out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from longpole.errors import LongpoleError
from longpole_engine.sampling.penalties import Penalties
from longpole_engine.telemetry.events import RequestRecord

if TYPE_CHECKING:
    from longpole_engine.sampling.structured import Matcher


class FinishReason(StrEnum):
    """Why a request produced no more; the first two are OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"
    ERROR = "error"
    EXPIRED = "expired"


class QueueFull(LongpoleError):
    """The waiting line is at its limit; the same request may be accepted later.

    Args:
        message: one sentence.
        retry_after_s: when, as far as the engine can tell.
    """

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen and when to stop.

    ``temperature`` 0 is greedy; ``top_k`` 0 is off; ``seed`` ``None`` draws one at random.
    ``num_top`` asks for the log-probabilities of each token and of so many alternatives. Of
    ``best_of`` answers the ``num_choices`` with the highest mean log-probability are returned;
    choice ``i`` draws with ``seed + i``. With ``is_beam`` they are the best of a beam search of
    width ``best_of``. ``grammar`` is copied, not used up.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    is_eos_ignored: bool = False
    min_p: float = 0.0
    penalties: Penalties = field(default_factory=Penalties)
    num_top: int | None = None
    num_choices: int = 1
    best_of: int = 1
    is_beam: bool = False
    grammar: "Matcher | None" = None

    @property
    def num_answers(self) -> int:
        """Answers made, whether returned or not."""
        return max(self.num_choices, self.best_of)


class Likely(NamedTuple):
    """A token that might have come: id, bytes and log-probability."""

    token: int
    data: bytes
    logprob: float


class TokenLogprob(NamedTuple):
    """A token of the answer, and the likeliest ones in its place."""

    token: int
    data: bytes
    logprob: float
    top: tuple[Likely, ...]


class Chunk(NamedTuple):
    """Text that one step added (it may be empty) and, in the last one, the reason to finish.

    ``choice`` is its answer's number; ``logprobs`` are those of the tokens that the text completes.
    """

    text: str
    finish: FinishReason | None
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Request:
    """One prompt to be continued.

    ``sink`` receives the chunks, called through the engine's ``post``; ``record`` is filled in
    as the request moves on. ``priority`` 0 is the most urgent. ``slo_s`` is the target for the
    first token; a request that has not begun ``deadline_s`` after its arrival expires. Requests
    share cached prefixes only with their ``salt``'s; ``session`` names the conversation, ``route``
    the kind of work.
    """

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    sink: Callable[[Chunk], None]
    record: RequestRecord
    priority: int = 0
    slo_s: float | None = None
    deadline_s: float | None = None
    salt: str = ""
    session: str | None = None
    route: str | None = None
