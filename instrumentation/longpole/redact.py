"""Takes personal data and credentials out of text: the rules, once for SDK and collector.

Expressions whose every repeat is bounded, so that their cost grows with the text's length only.
They are compiled when the first text comes.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

OWN: Final = "[redacted]"
"""What an expression of the owner's leaves in place of a match."""


class _Rule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    is_real: Callable[[str], bool] | None = None
    """Whether these letters and digits are one; ``None`` where the pattern says enough."""
    hint: str = ""
    """What every find holds: without it the pattern is not tried."""


def clean(text: str) -> str:
    """The text with every find replaced by its kind in brackets, e.g. ``[mail]``.

    Kinds: private_key, jwt, bearer, api_key, mail, iban and card (both by their check digits),
    phone.
    """
    for rule in _rules():
        if rule.hint in text:
            text = rule.pattern.sub(_replacement(rule), text)
    return text


def kinds() -> tuple[str, ...]:
    """What :func:`clean` takes out."""
    return tuple(rule.name for rule in _rules())


def _replacement(rule: _Rule) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        if rule.is_real is None:
            return f"[{rule.name}]"
        start, end = _find_real(match[0], rule.is_real)
        return f"{match[0][:start]}[{rule.name}]{match[0][end:]}" if end else match[0]

    return replace


def _find_real(text: str, is_real: Callable[[str], bool]) -> tuple[int, int]:
    """The longest run of whole groups that is one: a match may hold a neighbour's digits too."""
    groups = [match.span() for match in re.finditer(r"[A-Za-z0-9]+", text)]
    for size in range(len(groups), 0, -1):
        for first in range(len(groups) - size + 1):
            start, end = groups[first][0], groups[first + size - 1][1]
            if is_real(re.sub(r"[^A-Za-z0-9]", "", text[start:end])):
                return start, end
    return 0, 0


def _is_card(digits: str) -> bool:
    """Luhn's check (ISO/IEC 7812-1, annex B) over 13 to 19 digits."""
    if not 13 <= len(digits) <= 19:
        return False
    odd = sum(int(digit) for digit in digits[-1::-2])
    even = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (odd + even) % 10 == 0


def _is_iban(code: str) -> bool:
    """Check digits modulo 97 (ISO 13616-1, ISO/IEC 7064)."""
    if not 15 <= len(code) <= 34 or not code[:2].isalpha() or not code[2:4].isdigit():
        return False
    return int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


@cache
def _rules() -> tuple[_Rule, ...]:
    # Where a pattern looks behind only after its first letter, the search for that one is quick.
    return (
        _Rule(
            "private_key",
            re.compile(
                r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{0,16384}(-{5}END)?"
            ),
        ),
        _Rule("jwt", re.compile(r"\beyJ[\w-]{8,8192}(?:\.[\w-]{0,8192}){1,4}"), hint="eyJ"),
        _Rule("bearer", re.compile(r"(?i)\b(?:bearer|basic) {1,4}[\w.~+/=-]{16,8192}")),
        _Rule(
            "api_key",
            re.compile(
                r"\b(?:sk|pk|rk)[-_][\w-]{16,512}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[opsur]_\w{30,255}"
                r"|\bgithub_pat_\w{22,255}|\bglpat-[\w-]{20,255}|\bxox[abeoprs]-[\w-]{10,255}"
                r"|\bAIza[\w-]{35}|\bhf_[A-Za-z0-9]{30,64}|\blp_[\w-]{20,255}|\bnpm_[A-Za-z0-9]{36}"
            ),
        ),
        _Rule(
            "mail",
            re.compile(
                r"(?<![\w.%+-])[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"
                r"(?![\w-])"
            ),
            hint="@",
        ),
        _Rule(
            "iban",
            re.compile(
                r"[A-Z](?<!\w.)[A-Z]\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,4})?\b"
            ),
            _is_iban,
        ),
        _Rule("card", re.compile(r"\d(?<!\d.)(?:[ -]?\d){12,22}(?!\d)"), _is_card),
        _Rule(
            "phone",
            re.compile(
                r"(?<![\w.+])(?:(?:\+|00)\d(?:[ ()./-]{0,2}\d){6,14}"  # international
                r"|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}"  # North American
                r"|\(?0\d{1,5}\)?[ /-]\d(?:[ /-]?\d){4,9})(?!\w)"  # national, with a trunk 0
            ),
        ),
    )
