"""LangChain runnables that make their own OpenAI clients; run with the model's address."""

import asyncio
import sys
from contextlib import suppress

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

import longpole
from longpole.frameworks import langchain

longpole.init(service="langchain")
assert langchain.install() is langchain.install()
longpole.instrument("openai")
model = ChatOpenAI(model="fake", base_url=sys.argv[1], api_key="k")
answer = ChatPromptTemplate.from_messages([("user", "{question}")]) | model


class Notes(BaseRetriever):
    def _get_relevant_documents(self, query: str, **_: object) -> list[Document]:
        return [Document(page_content="rain")]


@tool
def look_up(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@tool
def break_down(city: str) -> str:
    """It always fails."""
    raise ValueError(f"no {city}")


def use_tools(question: str) -> str:
    Notes(name="notes").invoke(question)
    asked = model.bind_tools([look_up]).invoke(question)
    return str(look_up.invoke(asked.tool_calls[0]).content)


with longpole.workflow("once") as run:
    RunnableLambda(use_tools).with_config(run_name="agent").invoke("a secret question")
    run.accept()
question = {"question": "a secret question"}
RunnableParallel(a=answer, b=answer).with_config(run_name="both").invoke(question)
for _ in answer.with_config(run_name="streamed").stream(question):
    pass
asyncio.run(answer.with_config(run_name="awaited").ainvoke(question))
with suppress(ValueError), longpole.workflow("failing"):
    break_down.invoke({"city": "a secret city"})
assert longpole.context_headers() == {}
assert longpole.stats().num_internal_errors == {}
assert longpole.flush(10)
