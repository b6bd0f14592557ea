import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.errors import UsageError
from longpole_collector.redact import OWN, Redactor

REDACTOR = Redactor()
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
FOUND = {
    "write to jo.doe+x@mail.example.org today": "write to [mail] today",
    "card 4111 1111 1111 1111 12/27": "card [card] 12/27",
    "card 5500-0000-0000-0004.": "card [card].",
    "cards 4111111111111111 5500000000000004": "cards [card] [card]",
    "pay DE89 3704 0044 0532 0130 00 now": "pay [iban] now",
    "pay GB82WEST12345698765432 THIS WEEK": "pay [iban] THIS WEEK",
    "pay BE68 5390 0754 7034 THEN REST": "pay [iban] THEN REST",
    "call +49 (0)30 1234 5678 or": "call [phone] or",
    "call 030 1234567 or": "call [phone] or",
    "call (555) 123-4567 or": "call [phone] or",
    "key sk-proj-abcdefghijklmnopqrstuvwx end": "key [api_key] end",
    "AKIAIOSFODNN7EXAMPLE": "[api_key]",
    "ghp_" + "a1B2" * 9: "[api_key]",
    f"lp_0123abcd_{'f' * 64}": "[api_key]",
    f"token {JWT}!": "token [jwt]!",
    "Authorization: Bearer abcdefghijklmnop1234": "Authorization: [bearer]",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----": "[private_key]",
}
LEFT = (
    "the meeting of 2026-11-29 at 12:30 is in room 42",
    "order 1234 5678 9012 3456 left",  # no card by its check digit
    "DE00 3704 1144 1532 1130 11",  # no account by its check digits
    "version 1.2.3, 10.0.0.1, 3.14159265358979",
    "sk-learn and a@b and $@",
    "1790000000000000000",
)


@pytest.mark.parametrize("text", FOUND)
def test_what_names_a_person_or_opens_a_door_is_taken_out(text):
    cleaned = REDACTOR.clean(text)
    if "private_key" in FOUND[text]:
        assert cleaned.startswith("[private_key]")
        assert "MIIB" not in cleaned
    else:
        assert cleaned == FOUND[text]


@pytest.mark.parametrize("text", LEFT)
def test_what_only_looks_like_it_is_left(text):
    assert REDACTOR.clean(text) == text


def test_text_within_json_stays_json():
    said = json.dumps([{"role": "user", "content": 'I am "jo@example.org", 4111111111111111'}])
    cleaned = json.loads(REDACTOR.clean(said))
    assert cleaned[0]["content"] == 'I am "[mail]", [card]'


@given(st.text(max_size=200))
def test_any_text_is_taken_and_cleaning_twice_changes_nothing_more(text):
    once = REDACTOR.clean(text)
    assert REDACTOR.clean(once) == once


def test_the_owners_expressions_run_after_ours():
    redactor = Redactor([r"(?i)\bproject [a-z]+", r"EMP-\d{4}"])
    assert redactor.clean("Project Orion, EMP-1234, a@b.example") == f"{OWN}, {OWN}, [mail]"


@pytest.mark.parametrize("bad", ["(", r"(?=a)b", r"(a)\1", "a*", ""])
def test_an_expression_that_cannot_be_used_is_said(bad):
    with pytest.raises(UsageError, match="redaction rule"):
        Redactor([bad])


@pytest.mark.parametrize(
    "text",
    ["a" * 20_000 + "!", "1 " * 10_000, "a@" * 10_000, "eyJ" * 7_000, "DE12" * 5_000, "+1" * 10_000,
     "." * 20_000, "sk-" * 7_000, "(0" * 10_000, "-----BEGIN " * 2_000, "bearer " * 3_000],
)  # fmt: skip
def test_no_text_makes_the_rules_slow(text):
    redactor = Redactor([r"(a+)+$", r"(\w+\s?)*!"])
    started = time.process_time()
    redactor.clean(text)
    assert time.process_time() - started < 2
