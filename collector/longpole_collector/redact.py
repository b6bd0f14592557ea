"""Takes personal data and credentials out of text that a project's owner wants to keep.

Our own rules are the SDK's (:mod:`longpole.redact`). The owner's expressions run in RE2 (through
Arrow, which is here anyway): it has no backtracking, hence no expression that hangs, and refuses
what it cannot do in linear time (backreferences, lookaround).
"""

from collections.abc import Callable, Sequence
from importlib import import_module

import pyarrow as pa
import pyarrow.compute as pc

from longpole.errors import UsageError
from longpole.redact import OWN, clean

Hook = Callable[[str, str], str]
"""The owner's own function: an attribute's key and its text, to the text that may be stored."""


class Redactor:
    """Our rules, then the owner's expressions."""

    def __init__(self, own: Sequence[str] = ()) -> None:
        """Check the expressions.

        Raises:
            UsageError: one is no RE2 expression, or matches the empty text.
        """
        for pattern in own:
            try:
                is_empty_match = pc.match_substring_regex(pa.scalar(""), pattern).as_py()
            except pa.ArrowInvalid as error:
                raise UsageError(f"redaction rule '{pattern}': {error}") from error
            if is_empty_match:
                raise UsageError(f"redaction rule '{pattern}' matches the empty text: narrow it")
        self._own = tuple(own)

    def clean(self, text: str) -> str:
        """The text with every find replaced by its kind in brackets, e.g. ``[mail]``."""
        text = clean(text)
        if self._own:
            found = pa.scalar(text.encode(errors="replace").decode())
            for pattern in self._own:
                found = pc.replace_substring_regex(found, pattern, OWN)
            text = found.as_py()
        return text


def load_hook(name: str) -> Hook:
    """The function that ``module:function`` names; the module must be importable.

    Raises:
        UsageError: there is none.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise UsageError(f"redact_hook '{name}': expected module:function")
    try:
        found = getattr(import_module(module), function, None)
    except Exception as error:  # a module that is ours not to trust
        raise UsageError(
            f"redact_hook '{name}': the module cannot be imported ({type(error).__name__}: "
            f"{error}); install it beside longpole or name its folder in PYTHONPATH"
        ) from error
    if not callable(found):
        raise UsageError(f"redact_hook '{name}': {module} has no function '{function}'")
    hook: Hook = found
    return hook
