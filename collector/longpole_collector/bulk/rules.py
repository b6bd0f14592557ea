"""What the compiled loops must know, worked out in Python: once a key, a scope, a distinct value.

The rule tables, the choice of a dialect and the content policy stay where they are; here they
are asked, and their answers written into arrays.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from longpole.vocab import Kind, Span, Status
from longpole_collector.bulk import convert as c
from longpole_collector.bulk.arena import Arena, any_value, entry, json_text
from longpole_collector.bulk.hashing import states_of
from longpole_collector.bulk.resolve import (
    COLUMN_BITS,
    IS_FALLBACK,
    IS_PERSON,
    MAX_CLASSES,
    ODD_GROUP,
    GroupFacts,
    Plan,
    Values,
)
from longpole_collector.bulk.scan import KIND_BITS, MAX_MARK_SETS, MAX_MARKS, Known
from longpole_collector.bulk.steps import CODES, COLUMNS, Words
from longpole_collector.bulk.wire import clear, is_half_full, names, number_of
from longpole_collector.content import Policy, Scrubber
from longpole_collector.content_keys import Action, action
from longpole_collector.decode.raw import MAX_NAME_CHARS, Value, resource_of, text
from longpole_collector.decode.upb import attributes, event_of
from longpole_collector.dialects._foreign import SAY_WHETHER_STREAMED
from longpole_collector.dialects._steps import Step
from longpole_collector.dialects.base import EXCEPTION_EVENT, EXCEPTION_TYPE, Plain, word
from longpole_collector.health import Health

_BY_PYTHON: Final = ("operation", "finish_reason", "provider")
"""Columns whose values the steps must know."""
_PERSON: Final = "conversation_id"
_FLAGGING: Final = Step.INPUT_WHOLE | Step.FIRST_EVENT | Step.FIRST_CONTENT | Step.SETTLE
"""Steps that look at the flags a span states itself."""
_MEASURES: Final = (".length", ".hash")
_RESOURCE: Final = "resource."
_COUNTED: Final = ("content", "secret", "too_long")
NUM_KEYS: Final = 8192
NUM_TEMPLATES: Final = 4096
NUM_VALUES: Final = 16_384
NUM_SCOPES: Final = 1024
MAX_GROUPS: Final = 4096
_KEY_BYTES: Final = 1 << 19
_TEMPLATE_BYTES: Final = 1 << 20
_VALUE_BYTES: Final = 1 << 21
_MAX_ARENA_BYTES: Final = 8 << 20
_MAX_GROUP_BYTES: Final = 8 << 20


class Rules:
    """Answers for one reader; grows with what is seen and is then thrown away as a whole."""

    def __init__(self, reader: Any, unknown: str, unclaimed: Plain) -> None:
        self._reader = reader
        self._unclaimed = (unknown, unclaimed)
        self._health = Health()
        self._scrubber = Scrubber(Policy(key=reader.scrubber.policy.key), self._health)
        self.states = states_of(reader.scrubber.policy.key)
        self.arena = Arena()
        self.arena.put(b"\0")
        self.words = Words(*(self.arena.put(w) for w in (b"tool", b"retrieval", b"_OTHER")))
        self.kinds = self.arena.put_all([kind.value.encode() for kind in Kind])
        self.statuses = self.arena.put_all([status.value.encode() for status in Status])
        self._groups: dict[tuple[bytes, bytes], GroupFacts] = {}
        self._group_bytes = 0
        self._scopes: list[str] = []
        self._make_classes()
        self._make_keys()
        self._make_values()

    def is_full(self) -> bool:
        """Whether it is time to begin anew."""
        return (
            is_half_full(self.known.keys)
            or len(self._groups) > MAX_GROUPS
            or self._group_bytes > _MAX_GROUP_BYTES
            or len(self._scopes) > NUM_SCOPES // 2
            or self.arena.size > _MAX_ARENA_BYTES
        )

    def refresh(self) -> None:
        """Forget event templates and values before they are too many."""
        if is_half_full(self.known.templates):
            clear(self.known.templates)
            self.templates.fill(-1)
            self._template_counts.fill(0)
            self._num_templates = 0
        if is_half_full(self.values.names):
            clear(self.values.names)
            self.values.columns.fill(-2)
            self.values.texts.fill(-1)
            self.values.codes.fill(0)
            self._num_values = 0
            self.word_lists.clear()

    # --- classes: how a span is read ------------------------------------------------------------
    def _make_classes(self) -> None:
        self._classes: dict[tuple[str, Step], int] = {}
        self._plains: list[Plain] = []
        self.class_names: list[str] = []
        self.dialect_texts = np.zeros(MAX_CLASSES, np.int64)
        self.class_of = np.full(NUM_SCOPES * MAX_MARK_SETS, -2, np.int32)
        self._operations = np.zeros((MAX_CLASSES, NUM_KEYS), np.int32)
        self._tags = np.zeros((MAX_CLASSES, NUM_KEYS), np.int64)
        self._steps = np.zeros(MAX_CLASSES, np.int64)
        self._conversions: dict[tuple[Callable[[Any], Any] | None, str, Action], int] = {}
        self._conversion(None, "", Action.KEEP)

    def choose(self, places: Iterable[int]) -> None:
        """Find the class of each of these scopes and sets of marks."""
        for place in places:
            if self.class_of[place] == -2:
                scope, marks = divmod(int(place), MAX_MARK_SETS)
                self.class_of[place] = self._choose(self._scopes[scope], marks)

    def _choose(self, scope: str, mark_set: int) -> int:
        """See ``Reader.choose``; -1 if only the reference can tell or read."""
        owner = self._reader.owner(scope)
        if owner is not None:
            return self._class(owner.name, owner.plain, scope)
        bits = int(self.known.mark_sets[mark_set])
        present: dict[str, Value] = {
            mark: True for i, mark in enumerate(self._marks) if bits >> i & 1
        }
        for dialect in self._reader.dialects:
            if dialect.plain is not None and dialect.marks is not None:
                if dialect.claims(scope, present):
                    return self._class(dialect.name, dialect.plain, scope)
            elif dialect.marks is None or not dialect.marks.isdisjoint(present):
                return -1
        return self._class(*self._unclaimed, scope)

    def _class(self, name: str, plain: Plain | None, scope: str) -> int:
        if plain is None:
            return -1
        steps = Step(plain.steps)
        if not scope.startswith(SAY_WHETHER_STREAMED):
            steps &= ~Step.NOT_STREAMED
        found = (name, steps)
        if found not in self._classes:
            klass = len(self._classes)
            if klass >= MAX_CLASSES:
                return -1
            self._classes[found] = klass
            self._plains.append(plain)
            self.class_names.append(name)
            self.dialect_texts[klass] = self.arena.put(name.encode())
            self._steps[klass] = steps
            for key, label in enumerate(self._keys):
                self._operate(klass, key, label)
        return self._classes[found]

    # --- keys -----------------------------------------------------------------------------------
    def _make_keys(self) -> None:
        marks = {mark for dialect in self._reader.dialects for mark in dialect.marks or ()}
        self._marks = sorted(marks)
        if len(marks) > MAX_MARKS:
            raise ValueError(
                f"dialects look at {len(marks)} marks, at most {MAX_MARKS} can be told"
            )
        self.known = Known(
            names(NUM_KEYS, _KEY_BYTES),
            names(NUM_TEMPLATES, _TEMPLATE_BYTES),
            np.full(NUM_KEYS + 1, -1, np.int32),
            np.zeros(NUM_KEYS, np.int64),
            np.zeros(MAX_MARK_SETS, np.int64),
            np.array([len(marks)], np.int64),
        )
        self._keys: list[str | None] = []
        self._actions = np.zeros(NUM_KEYS, np.int32)
        self._key_texts = np.full(NUM_KEYS, -1, np.int64)
        self._is_measure = np.zeros(NUM_KEYS, np.uint8)
        self.templates = np.full((NUM_TEMPLATES, 3), -1, np.int64)
        self._template_counts = np.zeros((NUM_TEMPLATES, len(_COUNTED)), np.int64)
        self._num_templates = 0
        for mark in self._marks:
            data = np.frombuffer(mark.encode(), np.uint8)
            number_of(self.known.keys, data, 0, len(data), 0)
        self.serial = 0
        self.num_mark_sets = 0
        self.learn()

    def learn(self) -> None:
        """Look at the keys and event templates that have been found since."""
        for i in range(len(self._keys), int(self.known.keys.used[0])):
            self._learn_key(i, entry(self.known.keys, i))
        for i in range(self._num_templates, int(self.known.templates.used[0])):
            self._learn_template(i, entry(self.known.templates, i))
        self._num_templates = int(self.known.templates.used[0])

    def _learn_key(self, number: int, data: bytes) -> None:
        try:
            label = data.decode()
        except UnicodeDecodeError:
            self._keys.append(None)
            self._is_measure[number] = 2  # its spans are odd
            return
        self._keys.append(label)
        self._actions[number] = action(label).value
        self._key_texts[number] = self.arena.put(json_text(label) + b":")
        if label.startswith(_RESOURCE):
            self._is_measure[number] = 2
        elif label.endswith(_MEASURES):
            self._is_measure[number] = 1
        for klass in range(len(self._plains)):
            self._operate(klass, number, label)

    def _operate(self, klass: int, key: int, label: str | None) -> None:
        """Write down what a class does with a key."""
        rule = None if label is None else self._plains[klass].rules.get(label)
        found = Action.KEEP if label is None else action(label)
        if rule is None:
            self._tags[klass, key] = self._conversion(None, "", found)
            return
        converter = c.REFUSE
        if rule.column in COLUMNS:
            converter = c.NATIVE.get(rule.convert, c.PYTHON)
            if rule.column in _BY_PYTHON or rule.column == _PERSON:
                converter = c.PYTHON
        elif rule.column == "flags" and not self._steps[klass] & _FLAGGING:
            converter = c.WORDS
        convert = rule.convert if converter in (c.PYTHON, c.WORDS) else None
        column = COLUMNS.index(rule.column) if rule.column in COLUMNS else 0
        self._operations[klass, key] = (
            column
            | converter << COLUMN_BITS
            | IS_FALLBACK * rule.is_fallback
            | IS_PERSON * (rule.column == _PERSON and rule.convert is word)
        )
        self._tags[klass, key] = self._conversion(convert, rule.column, found)

    def _conversion(self, convert: Callable[[Any], Any] | None, column: str, found: Action) -> int:
        return self._conversions.setdefault((convert, column, found), len(self._conversions))

    def _learn_template(self, number: int, data: bytes) -> None:
        """JSON around an event's time, and of an exception its type."""
        try:
            message = SpanMessage.Event.FromString(data)
        except DecodeError:
            return
        event = event_of(message)
        if message.SerializeToString() != data or event.time_ns:
            return
        exception = -1
        if event.name == EXCEPTION_EVENT:
            kind = word(event.attributes.get(EXCEPTION_TYPE, ""))
            exception = 0 if kind is None else self.arena.put(kind.encode())
        before = self._dropped()
        whole = self._scrubber.clean(_EMPTY_SPAN, [event]).events or ""
        head = f'{{"name":{json.dumps(event.name, ensure_ascii=False)},"time_ns":'
        if not whole.startswith(f"[{head}0"):
            return
        tail = whole[len(head) + 2 : -1]
        self.templates[number, :2] = self.arena.put_all([head.encode(), tail.encode()])
        self.templates[number, 2] = exception
        self._template_counts[number] = self._dropped() - before

    def _dropped(self) -> np.ndarray:
        return np.array([self._health.total("values_dropped", cause) for cause in _COUNTED])

    def dropped_in_events(self, numbers: np.ndarray) -> dict[str, int]:
        """Values dropped in events of these templates, by cause."""
        totals = self._template_counts[numbers].sum(axis=0)
        return dict(zip(_COUNTED, totals.tolist(), strict=True))

    # --- values ---------------------------------------------------------------------------------
    def _make_values(self) -> None:
        self.values = Values(
            names(NUM_VALUES, _VALUE_BYTES),
            np.full(NUM_VALUES, -2, np.int64),
            np.full(NUM_VALUES, -1, np.int64),
            np.zeros(NUM_VALUES, np.int64),
        )
        self._num_values = 0
        self.word_lists: list[list[str]] = []
        """Flags that spans state."""

    def convert(self) -> None:
        """Convert the values that have been found since."""
        conversions = list(self._conversions)
        for i in range(self._num_values, int(self.values.names.used[0])):
            tag = int(self.values.names.entries[i, 1])
            value = any_value(tag & 15, entry(self.values.names, i))
            if value is not None:
                self._convert(i, value, *conversions[tag >> KIND_BITS])
        self._num_values = int(self.values.names.used[0])

    def _convert(
        self,
        number: int,
        value: Value,
        convert: Callable[[Any], Any] | None,
        column: str,
        found: Action,
    ) -> None:
        converted = None if convert is None else convert(value)
        if isinstance(converted, str):
            if column == _PERSON:
                converted = self._scrubber.pseudonym(converted)
            self.values.columns[number] = self.arena.put(converted.encode())
            self.values.codes[number] = CODES.get(converted, 0)
            return
        if isinstance(converted, list):
            self.values.columns[number] = len(self.word_lists)
            self.word_lists.append(converted)
            return
        if converted is not None:
            return  # odd
        self.values.columns[number] = -1
        written = text(value)
        if found is Action.PERSON:
            written = self._scrubber.pseudonym(written)
        elif found is Action.URL:
            written = written.partition("?")[0]
        elif found is not Action.KEEP:
            return
        self.values.texts[number] = self.arena.put(json_text(written))

    def measure(self, value: Value) -> tuple[bytes, bytes]:
        """Endings of the keys of a content value's length and hash, with these, as JSON."""
        said = text(value)
        return (
            f'.length":"{len(said)}"'.encode(),
            f'.hash":"{self._scrubber.digest(said)}"'.encode(),
        )

    # --- groups ---------------------------------------------------------------------------------
    def group(self, resource: bytes, scope: bytes) -> GroupFacts:
        """What the bytes of a resource and of a scope say."""
        key = (resource, scope)
        facts = self._groups.get(key)
        if facts is None:
            self._group_bytes += len(resource) + len(scope)
            facts = self._groups[key] = self._look_at(resource, scope)
        return facts

    def _look_at(self, resource: bytes, scope: bytes) -> GroupFacts:
        try:
            sender = resource_of(attributes(ResourceMessage.FromString(resource).attributes))
            name = InstrumentationScope.FromString(scope).name[:MAX_NAME_CHARS]
        except DecodeError:
            return ODD_GROUP
        kept = dict(sender.attributes)
        before = self._dropped()
        self._scrubber.clean(_EMPTY_SPAN._replace(attributes=kept, flags=[]))
        num_content, num_secret, num_cut = (self._dropped() - before).tolist()
        if num_content or num_cut or sender.is_cut:
            return ODD_GROUP
        if name not in self._scopes:
            if len(self._scopes) >= NUM_SCOPES:
                return ODD_GROUP
            self._scopes.append(name)
        whole = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
        return GroupFacts(
            self._scopes.index(name) * MAX_MARK_SETS,
            self.arena.put(whole[:-1].encode()),
            len(sender.attributes),
            self._put_name(sender.service),
            self._put_name(sender.instance_id),
            self._put_name(name),
            num_secret,
        )

    def _put_name(self, name: str | None) -> int:
        return self.arena.put(name.encode()) if name else -1

    def plan(self) -> Plan:
        """The arrays for the compiled loops, as they stand."""
        return Plan(
            self._operations,
            self._tags,
            self._actions,
            self._key_texts,
            self._is_measure,
            self.arena.bytes,
            self.class_of,
            self._steps,
        )


_EMPTY_SPAN: Final = Span._make(
    {name: Span._field_defaults.get(name) for name in Span._fields}.values()
)
