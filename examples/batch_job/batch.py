"""A batch job: many calls at once, at most so many in flight, and nothing lost at the end.

Waiting for a free place is a step of its own (``admission``), so that it is not mistaken for a
slow model. Runs against any OpenAI-compatible server (OPENAI_BASE_URL). See README.md.
"""

import argparse
import asyncio
import os
import sys

from openai import AsyncOpenAI, OpenAIError

import longpole

MODEL = os.environ.get("MODEL", "tiny")


async def summarise(client: AsyncOpenAI, places: asyncio.Semaphore, number: int) -> bool:
    """One item of the batch; whether it came out well."""
    async with longpole.workflow("summarise", route="batch.summary", slo_class="offline") as run:
        with longpole.admission("places"):
            await places.acquire()
        try:
            answer = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": f"Summarise report {number} in ten words."}],
                max_tokens=16,
                temperature=0,
            )
        except OpenAIError as error:
            run.fail(type(error).__name__)  # the batch goes on
            return False
        finally:
            places.release()
        text = answer.choices[0].message.content
        if text:
            run.accept(characters=len(text))
        else:
            run.reject("empty")
        return bool(text)


async def run_batch(num_items: int, num_places: int) -> int:
    """How many of so many items came out well, with at most so many calls in flight."""
    places = asyncio.Semaphore(num_places)
    async with AsyncOpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
        longpole.wrap(client)
        items = (summarise(client, places, number) for number in range(num_items))
        return sum(await asyncio.gather(*items))


def main() -> None:
    """Run the batch; exit code 1 if an item failed or a span was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=24)
    parser.add_argument("--places", type=int, default=4)
    given = parser.parse_args()
    longpole.init(service="batch")
    num_good = asyncio.run(run_batch(given.items, given.places))
    is_sent = longpole.flush(10)
    stats = longpole.stats()
    sys.stdout.write(
        f"{num_good} of {given.items} items, {stats.num_sent} spans sent, "
        f"{sum(stats.num_dropped.values())} lost\n"
    )
    sys.exit(0 if is_sent and num_good == given.items and not stats.num_dropped else 1)


if __name__ == "__main__":
    main()
