from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from longpole_engine.text.stops import StopBuffer

texts = st.text("abc", max_size=40)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[a:b] for a, b in pairwise(edges)]


def expected(text: str, stops: list[str]) -> str:
    """Reads letter by letter: the first stop string that is complete ends the text before it."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            return text[: end - len(max(done, key=len))]
    return text


@given(texts, stop_lists, st.lists(st.integers(1, 40), max_size=12))
def test_stop_strings_end_the_text_however_it_is_cut(
    text: str, stops: list[str], places: list[int]
) -> None:
    buffer = StopBuffer(stops)
    shown = ""
    for piece in cut(text, places):
        shown += buffer.push(piece)
        assert not any(stop in shown for stop in stops)
        assert expected(text, stops).startswith(shown)
    assert shown + buffer.finish() == expected(text, stops)


def test_nothing_follows_a_stop() -> None:
    buffer = StopBuffer(["END"])
    assert buffer.push("so E") == "so "
    assert buffer.push("ND more") == ""
    assert buffer.is_stopped
    assert buffer.push("again") == buffer.finish() == ""
