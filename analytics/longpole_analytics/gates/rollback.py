"""When a failure is sure enough to undo a change, and the message that asks for it.

A look is a confirmation if a check fails, its whole interval fails, and it rests on enough
requests that no earlier confirmation has counted. Only so many confirmations in a row ask for a
rollback, once; a look that is not sure begins anew. What is remembered between two looks is small
and can be written down.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from longpole.errors import BadInput
from longpole_analytics.gates.base import Check, Finding
from longpole_analytics.gates.config import Rollback

SCHEMA: Final = "longpole.rollback/1"
STATE_SCHEMA: Final = "longpole.gate_state/1"


@dataclass(frozen=True)
class State:
    """What is remembered of looks.

    Attributes:
        key: of which checks; another configuration begins anew.
        num: confirmations in a row.
        until_ns: the end of what they have counted; ``None`` without one.
        since_ns: when the first of them was.
        is_due: a rollback was decided and has not arrived.
        is_sent: it has.
    """

    key: str
    num: int = 0
    until_ns: int | None = None
    since_ns: int | None = None
    is_due: bool = False
    is_sent: bool = False

    def dumps(self) -> str:
        """As text; :func:`loads` reads it."""
        return json.dumps({"schema": STATE_SCHEMA, **asdict(self)})


@dataclass(frozen=True)
class Decision:
    """What a look comes to: ``status`` says it in a word, ``text`` in a sentence."""

    state: State
    status: str
    text: str
    is_to_send: bool


def key_of(checks: Sequence[Check], rollback: Rollback) -> str:
    """A name for the checks that may undo a change, as they are configured."""
    chosen = [
        [check.name, check.kind, dict(check.options)]
        for check in checks
        if check.name in rollback.checks
    ]
    told = json.dumps([rollback.url, chosen], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def loads(text: str | None, key: str) -> State:
    """The state that was written down, or a new one where it is of other checks.

    Raises:
        BadInput: it is no state.
    """
    if text is None:
        return State(key)
    try:
        found = json.loads(text)
        if found.pop("schema") != STATE_SCHEMA:
            raise ValueError("another schema")
        state = State(**found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"the state of the gate cannot be read, delete it: {error}") from error
    return state if state.key == key else State(key)


def is_sure(finding: Finding, rollback: Rollback) -> bool:
    """Whether a finding may be a confirmation: it fails for certain, on enough requests."""
    return finding.status == "fail" and finding.is_certain and finding.n >= rollback.min_n


def decide(
    state: State, whole: Mapping[str, Finding], fresh: Mapping[str, Finding], at_ns: int,
    rollback: Rollback,
) -> Decision:  # fmt: skip
    """What a look at some checks comes to.

    Args:
        state: what is remembered.
        whole: what the checks found in the window.
        fresh: what they found in requests that no confirmation has counted; the same as ``whole``
            before the first one.
        at_ns: the end of the window, Unix epoch nanoseconds.
        rollback: the rule.
    """
    if state.is_due:
        return Decision(state, "due", "a rollback was decided and has not arrived yet", True)
    sure = [name for name, each in whole.items() if is_sure(each, rollback)]
    if not sure:
        said = "no check fails for certain on enough requests"
        return Decision(State(state.key), "not_confirmed", said, False)
    if state.is_sent:
        return Decision(state, "sent_before", "a rollback was asked for already", False)
    if not any(is_sure(fresh[name], rollback) for name in sure if name in fresh):
        if any(each.status == "pass" for name, each in fresh.items() if name in sure):
            said = "what came since the last look does not fail"
            return Decision(State(state.key), "not_confirmed", said, False)
        num_new = max((each.n for name, each in fresh.items() if name in sure), default=0)
        said = (
            f"{state.num} of {rollback.confirmations} confirmations; the {num_new} requests since "
            f"the last one are too few, or not sure"
        )
        return Decision(state, "waiting", said, False)
    found = replace(
        state,
        num=state.num + 1,
        until_ns=at_ns,
        since_ns=at_ns if state.since_ns is None else state.since_ns,
    )
    if found.num < rollback.confirmations:
        said = f"{found.num} of {rollback.confirmations} confirmations: {', '.join(sure)}"
        return Decision(found, "confirming", said, False)
    said = f"{found.num} confirmations in a row: {', '.join(sure)}"
    return Decision(replace(found, is_due=True), "confirmed", said, True)


def message(state: State, whole: Mapping[str, Finding], rollback: Rollback) -> dict[str, Any]:
    """The document ``longpole.rollback/1``; the same decision has the same ``id``."""
    told = f"{state.key}/{state.since_ns}"
    return {
        "schema": SCHEMA,
        "id": hashlib.sha256(told.encode()).hexdigest()[:32],
        "action": "rollback",
        "confirmations": state.num,
        "decided_at": _time(state.until_ns),
        "checks": [
            {"name": name, "status": each.status, "text": each.text, "n": each.n, **each.details}
            for name, each in whole.items()
            if is_sure(each, rollback)
        ],
    }


def _time(at_ns: int | None) -> str | None:
    if at_ns is None:
        return None
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
