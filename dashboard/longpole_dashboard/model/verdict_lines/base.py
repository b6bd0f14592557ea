"""A sentence on top of a page: true of what the page has already asked, or why there is none.

Every number in it is one of the page's own, written as the page writes it: nothing is asked or
estimated for it. The Overview's are findings, which are looked for
(:mod:`longpole_dashboard.model.verdict`).
"""

from typing import Final, NamedTuple

from longpole.vocab import Stage
from longpole_analytics.advice import NEXT_CHECK
from longpole_analytics.wording import printable
from longpole_dashboard.model import text
from longpole_dashboard.model.cards import Tone
from longpole_dashboard.theme import look

FEW: Final = 20
"""What fewer show may be chance: a median needs so many."""
MAX_NAME: Final = 60
MAX_SENTENCE: Final = 240


class Line(NamedTuple):
    """A sentence, a smaller one below it, and whether it says that something is wrong."""

    line: str
    more: tuple[str, ...] = ()
    tone: Tone = "grey"

    @property
    def parts(self) -> tuple[str, Tone, *tuple[str, ...]]:
        """As a note takes it: the sentence, its tone, the small ones."""
        return self.line, self.tone, *self.more


def name(said: str, most: int = MAX_NAME) -> str:
    """Words from elsewhere for a sentence: what can be read of them, in one line, not too long."""
    whole = " ".join(printable(said).split())
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"


def sized(n: float) -> str:
    """How many a number rests on, and that they are too few where they are."""
    return f"n {text.count(n)}" + (", too few to hold for others" if n < FEW else "")


def next_check(stage: Stage) -> str:
    """What to look at first where a stage takes most."""
    return f"Next, {look(stage).label}: {NEXT_CHECK[stage]}."
