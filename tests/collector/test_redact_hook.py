"""The owner's own function for redaction: it has the last word, and its failure loses no span."""

import json

import pytest

from longpole.errors import UsageError
from longpole.vocab import Span
from longpole_collector.content import MAX_VALUE_CHARS, Policy, Scrubber, policy_of
from longpole_collector.decode.raw import RawEvent
from longpole_collector.health import Health
from longpole_collector.projects import Projects
from longpole_collector.settings import load_settings

KEY = bytes(range(32))


def span(attributes):
    return Span(
        "0" * 32, "1" * 16, None, "work", "internal", 1, 2, 3, "app", None, None, "longpole",
        "unset", flags=[], attributes=dict(attributes),
    )  # fmt: skip


def scrubber(content="drop", health=None, **given):
    return Scrubber(Policy(content, KEY, **given), health or Health())


def shout(key, text):
    """A hook: what it was called with, louder, and without a name."""
    return f"{key}: {text.upper().replace('JO', '***')}"


def break_down(key, text):
    raise ValueError(text)


def give_up(key, text):
    raise SystemExit(1)


def forget(key, text):
    return None


def test_the_owners_hook_has_the_last_word_on_redacted_text():
    health = Health()
    event = RawEvent("gen_ai.choice", 1, {"message": {"content": "Jo"}, "index": 0})
    attributes = {"input.value": "I am Jo, jo@example.org", "note": "Jo"}
    cleaned = scrubber("redact", health, hook=shout).clean(span(attributes), [event])
    assert cleaned.attributes == {"input.value": "input.value: I AM ***, [MAIL]", "note": "Jo"}
    assert json.loads(cleaned.events)[0]["attributes"] == {
        "message": 'message: {"CONTENT":"***"}',
        "index": 0,
    }
    for content in ("drop", "keep"):  # it belongs to redact
        told = scrubber(content, hook=break_down).clean(span({"input.value": "Jo"})).attributes
        assert told.get("input.value") == ("Jo" if content == "keep" else None)


@pytest.mark.parametrize("hook", [break_down, give_up, forget])
def test_a_hook_that_fails_drops_the_text_and_is_counted(hook, caplog):
    health = Health()
    cleaner = scrubber("redact", health, hook=hook)
    for _ in range(2):
        cleaned = cleaner.clean(span({"input.value": "hush", "note": "x"}))
        as_dropped = scrubber().clean(span({"input.value": "hush", "note": "x"}))
        assert cleaned == as_dropped
    assert health.total("values_dropped", "hook_failed") == 2
    (record,) = caplog.records
    assert "redact_hook fails" in record.getMessage()
    assert "hush" not in caplog.text


def test_what_a_hook_makes_long_is_cut():
    cleaned = scrubber("redact", hook=lambda key, text: text * 5_000).clean(
        span({"input.value": "four"})
    )
    assert cleaned.attributes["input.value"] == ("four" * 5_000)[:MAX_VALUE_CHARS]
    assert cleaned.flags == ["attributes_cut"]


def test_a_hook_is_named_in_the_configuration_and_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "our_rules.py").write_text("def clean(key, text):\n    return '-'\nx = 5\n")
    file = tmp_path / "longpole.toml"
    words = '[collector.projects.web]\ncontent = "redact"\nredact_hook = "{}"\n'
    file.write_text(words.format("our_rules:clean"))
    policy = policy_of(tmp_path / "db" / "projects" / "web")
    cleaned = Scrubber(policy, Health()).clean(span({"input.value": "Jo"}))
    assert cleaned.attributes == {"input.value": "-"}
    for name, reason in (
        ("our_rules", "expected module:function"),
        ("our_rules:x", "has no function 'x'"),
        ("our_rules:nothing", "has no function 'nothing'"),
        ("no_such_module:clean", "cannot be imported"),
    ):
        file.write_text(words.format(name))
        with pytest.raises(UsageError, match=f"redact_hook '{name}'.*{reason}"):
            policy_of(tmp_path / "db" / "projects" / "web")
        with pytest.raises(UsageError, match="redact_hook"):
            Projects(load_settings(db=tmp_path / "db"), None)
