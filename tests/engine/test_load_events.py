"""Events of a stream: what need not be parsed is what parsing would have said."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.call import Call
from longpole_engine.load.events import Broken, ErrorEvent, Events

TEXTS = st.lists(
    st.one_of(
        st.sampled_from([" word", "", '"', "\\", 'a"b', "\n", "é", "\u2028", "\x00", "}", "null"]),
        st.text(max_size=6),
    ),
    max_size=12,
)


def chunk(text: str | None, **more: Any) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    return {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more}


def line(document: Any, *, is_ascii: bool = True, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(document, ensure_ascii=is_ascii)}{end}".encode()


def feed(*pieces: bytes) -> Call:
    call = Call(0, is_streamed=True)
    events = Events(call)
    for at, piece in enumerate(pieces, 1):
        events.feed(piece, at)
    return call


@given(TEXTS, st.booleans(), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_content_is_what_is_not_empty_whatever_it_holds(
    texts: list[str], is_ascii: bool, end: str
) -> None:
    call = feed(*(line(chunk(text), is_ascii=is_ascii, end=end) for text in texts))
    assert list(call.content_ns) == [at for at, text in enumerate(texts, 1) if text]


@given(TEXTS, st.integers(1, 40))
def test_where_a_stream_is_cut_changes_nothing(texts: list[str], size: int) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(texts)}}
    whole = b"".join(map(line, (*map(chunk, texts), usage))) + b": ping\n\ndata: [DONE]\n\n"
    call = feed(*(whole[at : at + size] for at in range(0, len(whole), size)))
    assert len(call.content_ns) == sum(bool(text) for text in texts)
    assert call.usage.output_tokens == len(texts)


def test_counts_in_any_event_are_read_however_alike_they_are() -> None:
    counted = [chunk(" a", usage={"completion_tokens": number}) for number in (1, 2, 3)]
    call = feed(*map(line, counted))
    assert (len(call.content_ns), call.usage.output_tokens) == (3, 3)


@pytest.mark.parametrize(
    "document",
    [
        chunk(None, content=" a"),
        {"choices": [{"delta": {"content": None, "text": "a"}}]},
        {"choices": [{"delta": {"reasoning_content": "content"}}]},
        {"choices": [{"delta": {"content": " a", "tool_calls": None}}], "x": {"content": " a"}},
        {"x": {"content": " a"}, "choices": [{"delta": {"content": " a"}}]},
    ],
)
def test_forms_that_only_look_alike_are_parsed(document: dict[str, Any]) -> None:
    empty = json.loads(json.dumps(document).replace('" a"', '""'))
    every = [document, empty, document, empty]
    together = feed(*map(line, every))
    alone = [len(feed(line(each)).content_ns) for each in every]
    assert len(together.content_ns) == sum(alone)


def test_an_error_and_what_is_no_event_are_told() -> None:
    with pytest.raises(ErrorEvent, match="overloaded"):
        feed(line(chunk("a")), line({"error": {"message": "overloaded"}}))
    for broken in (b"data: {\n", b"data: 1\n", b'data: {"choices": [1]}\n', b"data: {} {}\n"):
        with pytest.raises(Broken):
            feed(broken)
    with pytest.raises(Broken):
        feed(b"data: \xff\n")
