"""The lines of a run: what they make of a target's own words."""

import pytest

from longpole_engine.load.told import said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"error": {"message": "a\\nb"}}', "a b"),
        ('{"message": "it failed"}', "it failed"),
        ('["odd"]', '["odd"]'),
        ("<html>\r\n down", "<html> down"),
        ("x" * 300, "x" * 200 + "..."),
    ],
)
def test_what_a_target_said_is_one_line(text: str, line: str) -> None:
    assert said(text) == line
