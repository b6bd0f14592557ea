"""The demo's application: a shop assistant, written and instrumented as a user would do it.

Two routes share one system prompt. ``shop.question`` retrieves passages, asks the model and
validates; ``shop.order`` calls two tools side by side first. The planted fault is one line: from
version v2 on the prompt of ``shop.question`` starts with the time of day, so that no prefix of
it can be reused.

The tools answer from a bundled table; their short waits stand for the network of a real back end.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections import Counter
from datetime import UTC, datetime
from importlib.resources import files

from openai import AsyncOpenAI

import longpole

INSTRUCTIONS = """\
You are the assistant of a bicycle shop. Answer the customer in one short sentence, using only the
notes that come with the question. Give numbers and units exactly as they stand in the notes. If
the notes do not hold the answer, say that a colleague will call back. Never promise a discount,
never speak about other shops, never ask for card numbers. Use plain words.
Example. Notes: Pumps: a floor pump is free with any bicycle above 700 euros. Question: Do I get a
pump with a bicycle for 800 euros? Answer: Yes, a floor pump is free above 700 euros.
Example. Notes: Order 2077: saddle for 60 euros, packed. Delivery: 35 euros. Question: Where is my
order 2077? Answer: Your saddle is packed, delivery costs 35 euros."""

QUESTION_ROUTE = "shop.question"
ORDER_ROUTE = "shop.order"
QUESTION_SHARE = 0.85


class Handbook:
    """The shop's texts, orders and questions, with a small lexical search over the texts."""

    def __init__(self) -> None:
        raw = files("longpole_dashboard.demo").joinpath("data/handbook.json").read_text("utf-8")
        data = json.loads(raw)
        self.questions: list[str] = data["questions"]
        self.orders: dict[str, dict[str, str | int]] = data["orders"]
        self._texts: list[str] = [passage["text"] for passage in data["passages"]]
        self._words = [Counter(_words(text)) for text in self._texts]

    def search(self, question: str, limit: int) -> list[str]:
        """The ``limit`` texts that share the rarest words with the question."""
        wanted = set(_words(question))
        num_texts = len(self._texts)
        rarity = {
            word: math.log(1 + num_texts / (1 + sum(word in words for words in self._words)))
            for word in wanted
        }
        scores = [sum(rarity[word] for word in wanted & words.keys()) for words in self._words]
        best = sorted(range(num_texts), key=lambda index: -scores[index])
        return [self._texts[index] for index in best[:limit]]


class ShopAssistant:
    """The application. One instance serves many requests at once."""

    def __init__(self, client: AsyncOpenAI, model: str, seed: int) -> None:
        self._client = longpole.wrap(client)
        self._model = model
        self._handbook = Handbook()
        self._random = random.Random(seed)  # noqa: S311 - picks questions, guards nothing
        self.prompt_version = "v1"

    async def handle(self, max_tokens: int) -> None:
        """One customer request, from its arrival to the accepted or rejected answer."""
        if self._random.random() < QUESTION_SHARE:
            await self.answer_question(max_tokens)
        else:
            await self.answer_order(max_tokens)

    async def answer_question(self, max_tokens: int) -> None:
        """Retrieve, ask, validate."""
        question = self._random.choice(self._handbook.questions)
        version = self.prompt_version
        async with longpole.workflow(
            "question", route=QUESTION_ROUTE, slo_class="interactive"
        ) as run:
            with longpole.retrieval("handbook"):
                notes = " ".join(self._handbook.search(question, limit=1))
            with longpole.prompt(version=version):
                answer = await self._ask(run, self._system(version), notes, question, max_tokens)
            self._validate(run, answer, notes)

    async def answer_order(self, max_tokens: int) -> None:
        """Two tools side by side, then ask and validate."""
        order = self._random.choice(list(self._handbook.orders))
        async with longpole.workflow("order", route=ORDER_ROUTE, slo_class="interactive") as run:
            facts = self._handbook.orders[order]
            status, fee = await asyncio.gather(self._order_status(order), self._delivery_fee(facts))
            notes = f"Order {order}: {status} Delivery: {fee}"
            with longpole.prompt(version="v1"):
                answer = await self._ask(
                    run, INSTRUCTIONS, notes, f"Where is my order {order}?", max_tokens
                )
            self._validate(run, answer, notes)

    async def _order_status(self, order: str) -> str:
        with longpole.tool("order_status"):
            await asyncio.sleep(self._random.uniform(0.03, 0.09))
            facts = self._handbook.orders[order]
            return f"{facts['item']} for {facts['price_eur']} euros, {facts['status']}."

    async def _delivery_fee(self, facts: dict[str, str | int]) -> str:
        with longpole.tool("delivery_fee"):
            await asyncio.sleep(self._random.uniform(0.02, 0.05))
            if int(facts["km"]) > 40:
                return "out of reach of our own van."
            return "free." if int(facts["price_eur"]) > 900 else "35 euros."

    @staticmethod
    def _system(version: str) -> str:
        if version == "v1":
            return INSTRUCTIONS
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        return f"Current time: {now}\n{INSTRUCTIONS}"

    async def _ask(
        self, run: longpole.Run, system: str, notes: str, question: str, max_tokens: int
    ) -> str:
        stream = await self._client.chat.completions.create(
            model=self._model,
            messages=[
                {"role": "system", "content": system},
                {"role": "user", "content": f"Notes: {notes}\nQuestion: {question}"},
            ],
            temperature=0,
            max_tokens=max_tokens,
            stream=True,
        )
        pieces: list[str] = []
        async for chunk in stream:
            text = chunk.choices[0].delta.content if chunk.choices else None
            if text:
                if not pieces:
                    run.first_useful_output()
                pieces.append(text)
        return "".join(pieces)

    @staticmethod
    def _validate(run: longpole.Run, answer: str, notes: str) -> None:
        """Accept an answer that gives a figure or a longer word of the notes."""
        with longpole.validation("grounded"):
            said = {word for word in _words(answer) if len(word) > 3 or word.isdecimal()}
            shared = said & set(_words(notes))
        if shared:
            run.accept(shared_words=len(shared))
        else:
            run.reject("not grounded in the notes")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
