"""An agent's five steps: plan, retrieval, tools side by side, answer, validation.

Runs against any OpenAI-compatible server (OPENAI_BASE_URL); retrieval and tools are local
stand-ins that take a little time. See README.md.
"""

import os
import sys
import time

from openai import OpenAI

import longpole

MODEL = os.environ.get("MODEL", "tiny")
DOCUMENTS = {
    "queue": "A request waits in the queue until the engine has room for it.",
    "prefill": "Prefill reads the whole prompt before the first token can come.",
    "decode": "Decode produces the answer, one token after the other.",
}


def ask(client: OpenAI, task: str, text: str) -> str:
    """One model call."""
    messages = [{"role": "system", "content": task}, {"role": "user", "content": text}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=32)
    return answer.choices[0].message.content or ""


@longpole.retrieval("notes")
def search(query: str) -> list[str]:
    """The notes that share a word with the query; all of them if none does."""
    time.sleep(0.02)
    words = set(query.lower().split())
    return [text for name, text in DOCUMENTS.items() if name in words] or list(DOCUMENTS.values())


@longpole.tool("word_count")
def word_count(text: str) -> int:
    """How many words a text has."""
    time.sleep(0.05)
    return len(text.split())


@longpole.tool("clock")
def clock() -> str:
    """The time of day."""
    time.sleep(0.03)
    return time.strftime("%H:%M")


def run_agent(client: OpenAI, question: str) -> str:
    """The answer to one question."""
    with longpole.workflow("agent", route="agent.notes", route_version="1") as run:
        with longpole.prompt(version="plan-1"):
            plan = ask(client, "Say in one line how to answer.", question)
        run.acknowledged()
        notes = search(question)
        with longpole.fanout("tools"), longpole.context_executor(2) as pool:
            words = pool.submit(word_count, " ".join(notes))
            now = pool.submit(clock)
            facts = f"{words.result()} words of notes, it is {now.result()}"
        with longpole.prompt(version="answer-1"):
            answer = ask(client, "\n".join(["Answer from:", *notes, facts, plan]), question)
        run.first_useful_output()
        with longpole.validation("not_empty"):
            is_good = bool(answer.strip())
        if is_good:
            run.accept(notes=len(notes))
        else:
            run.reject("empty")
    return answer


def main() -> None:
    """Answer the question on the command line."""
    question = " ".join(sys.argv[1:]) or "What happens in prefill and in decode?"
    longpole.init(service="agent")
    with OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
        sys.stdout.write(run_agent(longpole.wrap(client), question) + "\n")
    longpole.flush(5)


if __name__ == "__main__":
    main()
