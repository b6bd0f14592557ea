"""What a model said is gathered in order, bounded, and cut where it says so."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longpole
from longpole import content, settings
from longpole.said import Said


@pytest.fixture(autouse=True)
def _captured(_fresh: None) -> None:
    settings.put(settings.load(capture_content=True))


def sent(said: Said, reasons: Any = None) -> Any:
    found = content.output_messages(said.messages(reasons or {}))
    return None if found is None else json.loads(found)


def test_parts_stand_in_the_order_they_came() -> None:
    said = Said()
    for text in ("let me", " see"):
        said.reasoning(text)
    said.text("a")
    said.call(0, "search", None, "c1")
    said.call(1, "look", '{"x":')
    said.call(0, None, '{"q": 1}')
    said.call(1, None, " 2}")
    said.text("b")
    said.text("other", choice=1)
    assert sent(said, {0: "stop"}) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "let me see"},
                {"type": "text", "content": "a"},
                {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": 1}},
                {"type": "tool_call", "id": None, "name": "look", "arguments": {"x": 2}},
                {"type": "text", "content": "b"},
            ],
            "finish_reason": "stop",
        },
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "other"}],
            "finish_reason": "",
        },
    ]


def test_nothing_said_is_no_message() -> None:
    said = Said()
    said.text("")
    said.reasoning("")
    said.parts([])
    assert sent(said) is None


def test_a_long_answer_is_cut_and_says_how_long_it_was() -> None:
    said = Said()
    for _ in range(1000):
        said.text("word " * 20)
    assert sum(map(len, said._choices[0][0].texts)) <= content.MAX_GATHERED
    (message,) = sent(said)
    (part,) = message["parts"]
    assert part["content"].startswith("word word ")
    assert part["content"].endswith(" [cut: 100000 characters in all]")


def test_what_comes_after_a_long_part_is_marked_as_left_out() -> None:
    said = Said()
    said.text("x" * 50_000)
    said.call(0, "search", "{}")
    said.call(1, "search", "{}")
    said.text("end", choice=5)
    (message,) = sent(said)
    text, mark = message["parts"]
    assert text["content"].endswith(" [cut: 50000 characters in all]")
    assert mark == {"type": "cut", "num_left_out": 1}


def test_no_secret_shows_at_the_edge_of_what_was_gathered() -> None:
    said = Said()
    said.text("jo@example.org " * 5000)
    (message,) = sent(said)
    kept = message["parts"][0]["content"].partition(" [cut")[0]
    assert set(kept.split()) <= {"[mail]", "[mail", "[mai", "[ma", "[m", "["}


operation = st.one_of(
    st.tuples(st.just("text"), st.text(max_size=200), st.integers(0, 3)),
    st.tuples(st.just("reasoning"), st.text(max_size=200), st.integers(0, 3)),
    st.tuples(st.just("call"), st.text(max_size=200), st.integers(0, 3)),
)


@given(st.lists(operation, max_size=30), st.integers(0, 1000))
def test_what_is_kept_is_bounded_whatever_comes(operations: Any, num_chars: int) -> None:
    said = Said(num_chars)
    for what, text, choice in operations:
        if what == "call":
            said.call(text, "f", text, choice=choice)
        else:
            getattr(said, what)(text, choice)
    pieces = [piece for found in said._choices.values() for piece in found]
    assert sum(len(text) for piece in pieces for text in piece.texts) <= num_chars
    assert len(pieces) <= num_chars // 24 + 1 + 4
    sent(said)
    assert not longpole.stats().num_internal_errors
