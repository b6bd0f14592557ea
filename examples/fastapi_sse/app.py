"""A chat page whose answer is streamed: browser, application and model in one trace.

The page begins the trace with the click and sends its traceparent. FastAPI takes it up (0.165 and
later trace by themselves once OpenTelemetry is set up, which ``longpole.init`` does), the wrapped
client hands it on to the model's server. See README.md.
"""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, StreamingResponse
from openai import AsyncOpenAI
from pydantic import BaseModel

import longpole
import longpole.browser

COLLECTOR = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
MODEL = os.environ.get("MODEL", "tiny")
PAGE = Path(__file__).with_name("page.html").read_text("utf-8")

longpole.init(service="chat-app")
client = longpole.wrap(AsyncOpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none")))
app = FastAPI()


class Question(BaseModel):
    """What the page sends."""

    text: str


@app.get("/")
def page() -> HTMLResponse:
    """The page, with the beacon's element in it."""
    tag = longpole.browser.script_tag("/longpole.js", collector=COLLECTOR, service="chat-page")
    return HTMLResponse(PAGE.replace("<!-- beacon -->", tag))


@app.get("/longpole.js")
def beacon() -> FileResponse:
    """The beacon."""
    return FileResponse(longpole.browser.PATH)


@app.post("/chat")
async def chat(question: Question) -> StreamingResponse:
    """The answer, as it comes."""
    return StreamingResponse(answer(question.text), media_type="text/event-stream")


@longpole.workflow("chat", route="chat.sse", slo_class="interactive")
async def answer(text: str) -> AsyncIterator[str]:
    """Server-sent events: one for each piece of the answer, then ``done``."""
    run = longpole.current_run()
    with longpole.prompt_assembly("chat"):
        messages = [
            {"role": "system", "content": "Answer in one short paragraph."},
            {"role": "user", "content": text},
        ]
    pieces: list[str] = []
    stream = await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=48, stream=True
    )
    async for chunk in stream:
        piece = chunk.choices[0].delta.content if chunk.choices else None
        if piece:
            run.first_useful_output()
            pieces.append(piece)
            yield f"data: {json.dumps(piece)}\n\n"
    with longpole.validation("not_empty"):
        is_good = bool("".join(pieces).strip())
    if is_good:
        run.accept(characters=sum(map(len, pieces)))
    else:
        run.reject("empty")
    yield "event: done\ndata: {}\n\n"
