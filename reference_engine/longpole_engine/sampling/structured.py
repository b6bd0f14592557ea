"""Answers in a given form: only tokens that a grammar allows can be drawn.

The grammars are llguidance's, the extra ``structured``. One matcher follows one answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from longpole.errors import BadInput, UsageError

if TYPE_CHECKING:
    import llguidance

INSTALL: Final = "pip install 'longpole[structured]'"

_COMPACT: Final = {"x-guidance": {"whitespace_flexible": False}}
"""Free white space would let a weak model go on for ever without content."""


class Matcher:
    """Where one answer stands in its grammar.

    Args:
        matcher: llguidance's, consumed by this one.
    """

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    def copy(self) -> Matcher:
        """A second one at the same place."""
        return Matcher(self._matcher.deep_copy())

    @property
    def is_stopped(self) -> bool:
        """Whether nothing can follow."""
        return bool(self._matcher.is_stopped())

    def mask(self, logits: Tensor) -> None:
        """Rule out, in place, what must not come next; at the end of the form that is nothing."""
        if self.is_stopped:
            return
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: logits.shape[0]].astype(bool)
        is_out = torch.ones(logits.shape[0], dtype=torch.bool)
        is_out[: allowed.shape[0]] = torch.from_numpy(~allowed)
        logits.masked_fill_(is_out, -torch.inf)

    def take(self, token: int) -> bool:
        """Move on by a token; ``False``, and no move, if it is not allowed."""
        return bool(self._matcher.try_consume_tokens([token]))

    def back(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        if num_tokens:
            self._matcher.rollback(num_tokens)

    def num_valid(self, tokens: Sequence[int]) -> int:
        """How many of these could follow."""
        return 0 if self.is_stopped else int(self._matcher.validate_tokens(list(tokens)))


class Grammars:
    """Compiles forms for one tokenizer.

    Args:
        tokenizer_json: the ``tokenizers`` library's JSON.
        eos_ids: tokens that end an answer.

    Raises:
        UsageError: llguidance is not installed.
    """

    def __init__(self, tokenizer_json: str, eos_ids: Sequence[int]) -> None:
        try:
            import llguidance
        except ModuleNotFoundError as error:
            raise UsageError(f"structured output needs llguidance: {INSTALL}") from error
        self._library = llguidance
        self._tokenizer = llguidance.LLTokenizer(tokenizer_json, eos_token=list(eos_ids))

    def json(self, schema: Mapping[str, Any] | None) -> Matcher:
        """A JSON document that a schema describes; any object without one.

        Raises:
            BadInput: the schema is not one, or asks for something the grammar cannot promise.
        """
        asked = {"type": "object"} if schema is None else dict(schema)
        matcher_class = self._library.LLMatcher
        try:
            grammar = matcher_class.grammar_from_json_schema(json.dumps({**asked, **_COMPACT}))
        except ValueError as error:
            raise BadInput(f"the schema cannot be used: {error}") from error
        is_wrong, messages = matcher_class.validate_grammar_with_warnings(grammar, self._tokenizer)
        if is_wrong or messages:
            raise BadInput(f"the schema cannot be used: {messages[0]}")
        return Matcher(matcher_class(self._tokenizer, grammar, log_level=0))
