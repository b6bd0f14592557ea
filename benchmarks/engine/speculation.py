"""What drafts are worth: where an answer copies, and where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.bars import Bar
from benchmarks.engine.bench import Bench
from benchmarks.engine.driver import Driver

from longpole_engine.config import Speculation
from longpole_engine.text.chat import ChatTemplate

_OUTPUT: Final = 96

_LEDGER: Final = (
    "The harbour master kept a ledger of every vessel that came in after dark. He wrote the name, "
    "the cargo and the hour, and beside each entry he drew a small picture of the sail. On the "
    "last night of October he drew nothing, because the ship that came in had no sail at all."
)
_MEETING: Final = (
    "The meeting starts at nine in the mornign and ends at noon. Bring your own laptop, a notebook "
    "and two pens. Lunch is served in the garden at half past twelve, and the bus back to the "
    "station leaves at two."
)
_CODE: Final = (
    "def total(prices, taxes):\n    result = 0\n    for price, tax in zip(prices, taxes):\n"
    "        result += price * (1 + tax)\n    return result\n\n"
    "def mean(prices, taxes):\n    return total(prices, taxes) / len(prices)\n"
)
COPIES: Final = (
    f"Repeat this text exactly, but write 'Harbour' with a capital letter:\n\n{_LEDGER}",
    f"Fix the spelling mistakes in this text and return the whole text:\n\n{_MEETING}",
    f"Rewrite this code, renaming the function `total` to `summed`. Return the whole code.\n"
    f"```python\n{_CODE}```",
)
CHATS: Final = (
    "Why is the sky blue in the day and red in the evening?",
    "Tell me a short story about a fox who learns to swim.",
    "Give me some advice for my first job interview.",
)


def speculation(bench: Bench) -> list[Bar]:
    """Time of answers without drafts over with look-ups, of fixed and of chosen length."""
    bars = []
    for name, questions, need in (("copy-editing", COPIES, 1.8), ("chat", CHATS, 0.95)):
        seconds, sides = _compare(bench, questions)
        best = min(value for key, value in seconds.items() if key.startswith("fixed"))
        bars.append(
            Bar(f"speculation, {name}", seconds["off"] / seconds["dynamic"], "x", ">=", need, sides)
        )
        best = min(best, seconds["off"])
        bars.append(
            Bar(f"chosen / best fixed, {name}", best / seconds["dynamic"], "x", ">=", 0.97, {})
        )
    return bars


def batches(bench: Bench) -> list[Bar]:
    """The same with four and eight chats side by side, where drafts pay less or not at all."""
    bars = []
    for num in (4, 8):
        questions = [f"{CHATS[n % 3]} Answer number {n}." for n in range(num)]
        seconds, sides = _compare(bench, questions, is_together=True, kinds=("off", "dynamic"))
        value = seconds["off"] / seconds["dynamic"]
        bars.append(Bar(f"speculation, {num} chats at once", value, "x", ">=", 0.95, sides))
    return bars


def early_exit(bench: Bench) -> list[Bar]:
    """Self-speculation with four fifths of the layers: what a poor draft costs."""
    seconds, sides = _compare(bench, CHATS[:1], kinds=("off", "self_3", "self_dynamic"))
    value = seconds["off"] / seconds["self_dynamic"]
    return [Bar("early exit, chosen length, chat", value, "x", "", 0, sides)]


_KINDS: Final[dict[str, dict[str, object]]] = {
    "off": {},
    "dynamic": {"speculation": Speculation.NGRAM},
    **{
        f"fixed_{num}": {
            "speculation": Speculation.NGRAM,
            "num_drafts": num,
            "is_draft_dynamic": False,
        }
        for num in (1, 2, 3)
    },
    "self_3": {"speculation": Speculation.SELF, "is_draft_dynamic": False},
    "self_dynamic": {"speculation": Speculation.SELF},
}


def _compare(
    bench: Bench,
    questions: Sequence[str],
    *,
    is_together: bool = False,
    kinds: Sequence[str] = ("off", "dynamic", "fixed_1", "fixed_2", "fixed_3"),
) -> tuple[dict[str, float], dict[str, float | str]]:
    """Decoding time of a token by kind, taken in turns, best of each; and what was drafted."""
    drivers = {
        kind: Driver(bench.model, bench.threads, is_prefix_cached=False, **_KINDS[kind])
        for kind in kinds
    }
    template = ChatTemplate(bench.model.text.chat_template or "")
    prompts = [template.render([{"role": "user", "content": text}]) for text in questions]
    groups = [prompts] if is_together else [[prompt] for prompt in prompts]
    seconds = dict.fromkeys(kinds, 0.0)
    for group in groups:
        best = dict.fromkeys(kinds, float("inf"))
        for _ in range(bench.rounds):
            for kind, driver in drivers.items():
                best[kind] = min(best[kind], _decode(driver, group))
        for kind in kinds:
            seconds[kind] += best[kind]
    sides: dict[str, float | str] = {
        f"{kind}_ms": value / len(groups) for kind, value in seconds.items()
    }
    for kind, driver in drivers.items():
        records = driver.records.values()
        if num_drafted := sum(record.num_drafted for record in records):
            share = sum(record.num_accepted for record in records) / num_drafted
            num_steps = sum(record.num_steps for record in records)
            num_tokens = sum(record.output_tokens or 0 for record in records)
            sides[f"{kind}_accepted"] = share
            sides[f"{kind}_tokens_a_step"] = num_tokens / num_steps
    return seconds, sides


def _decode(driver: Driver, prompts: Sequence[str]) -> float:
    """Milliseconds a token, from the last first token to the end."""
    encode = driver.engine.tokenizer.encode
    names = [driver.submit(encode(text), _OUTPUT, has_end=True) for text in prompts]
    while not all(driver.times[name] for name in names):
        driver.engine.step()

    def num_tokens() -> int:
        return sum(driver.records[name].output_tokens or 0 for name in names)

    before = num_tokens()
    return driver.drain() * 1e3 / (num_tokens() - before)
