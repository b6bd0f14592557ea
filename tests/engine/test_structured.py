"""Answers in a form: whatever the model would rather say, the form is kept."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from longpole.errors import BadInput, UsageError
from longpole_engine.config import Numerics, Speculation
from longpole_engine.models.tiny import tiny
from longpole_engine.sampling.structured import Grammars, Matcher
from longpole_engine.types import FinishReason

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

Drive = Callable[..., Any]

LEAVES: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"type": "null"},
    {"type": "integer", "minimum": -9, "maximum": 120},
    {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
    {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25},
    {"type": "string", "maxLength": 5},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "string", "pattern": "^[a-c]{2}[0-9]$"},
    {"type": "string", "enum": ["red", "green", "blue gray", "ü"]},
    {"const": {"fixed": [1, None]}},
    {"enum": [1, "1", True, None]},
    {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 3, "maximum": 7}]},
]


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: list[dict[str, Any]] = [
    *LEAVES,
    *(closed(a=leaf, b=LEAVES[n - 1]) for n, leaf in enumerate(LEAVES)),
    *({"type": "array", "items": leaf, "minItems": 1, "maxItems": 3} for leaf in LEAVES),
    *(closed(one=closed(two={"type": "array", "items": leaf, "maxItems": 2})) for leaf in LEAVES),
    {
        "$defs": {"node": closed(value=LEAVES[2])},
        "type": "array",
        "items": {"$ref": "#/$defs/node"},
        "maxItems": 2,
    },
    {
        "type": "object",
        "properties": {"maybe": LEAVES[0], "also": LEAVES[8]},
        "additionalProperties": False,
    },
    {"type": "array", "prefixItems": [LEAVES[0], LEAVES[5]], "items": False, "minItems": 2},
]


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    text = tiny().text
    return Grammars(text.tokenizer_json, text.eos_ids)


@pytest.mark.parametrize("speculation", [Speculation.OFF, Speculation.NGRAM, Speculation.SELF])
def test_every_answer_parses_and_fits_its_schema(
    drive: Drive, grammars: Grammars, speculation: Speculation
) -> None:
    driver = drive(
        numerics=Numerics.INVARIANT,
        speculation=speculation,
        is_draft_dynamic=False,
        max_num_seqs=8,
        max_queue=1000,
    )
    names = {
        driver.submit(
            [7, 8, 9, n],
            seed=n,
            temperature=(0.0, 1.0, 1.8)[n % 3],
            max_tokens=200,
            grammar=grammars.json(schema),
        ): schema
        for n, schema in enumerate(SCHEMAS)
    }
    assert len(names) >= 50
    driver.drain()
    for name, schema in names.items():
        assert driver.chunks[name][-1].finish is FinishReason.STOP
        jsonschema.validate(json.loads(driver.text(name)), schema)
    if speculation is Speculation.NGRAM:
        assert sum(record.num_accepted for record in driver.records.values()) > 0


def test_drafts_change_no_formed_answer(drive: Drive, grammars: Grammars) -> None:
    texts = []
    for speculation in (Speculation.OFF, Speculation.NGRAM, Speculation.SELF):
        driver = drive(numerics=Numerics.INVARIANT, speculation=speculation, is_draft_dynamic=False)
        names = [
            driver.submit(
                [7], seed=n, temperature=1.0, max_tokens=90, grammar=grammars.json(schema)
            )
            for n, schema in enumerate(SCHEMAS[12:24])
        ]
        driver.drain()
        texts.append([driver.text(name) for name in names])
    assert texts[0] == texts[1] == texts[2]


def test_choices_keep_the_form_each_by_itself(drive: Drive, grammars: Grammars) -> None:
    driver = drive()
    schema = closed(a=LEAVES[5], b=LEAVES[2])
    name = driver.submit(
        [7],
        seed=4,
        temperature=1.0,
        max_tokens=90,
        num_choices=4,
        best_of=4,
        grammar=grammars.json(schema),
    )
    driver.drain()
    texts = driver.texts(name)
    for text in texts:
        jsonschema.validate(json.loads(text), schema)
    assert len(set(texts)) > 1


def test_any_object_is_an_object(drive: Drive, grammars: Grammars) -> None:
    driver = drive()
    text, _ = driver.answer([7], temperature=0.0, max_tokens=2, grammar=grammars.json(None))
    assert text.startswith("{")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "wibble"},
        {"type": "string", "pattern": "("},
        {"$ref": "#/nowhere"},
        {"type": "object", "properties": 5},
    ],
)
def test_what_cannot_be_promised_is_refused(grammars: Grammars, schema: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="schema"):
        grammars.json(schema)


def test_a_grammar_that_breaks_down_fails_its_request_alone(
    drive: Drive, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drive()
    other = driver.submit([7, 8], max_tokens=20, is_eos_ignored=True)
    name = driver.submit([7], max_tokens=90, grammar=grammars.json(SCHEMAS[12]))
    for _ in range(3):
        driver.engine.step()
    monkeypatch.setattr(Matcher, "take", lambda *_: False)
    driver.drain()
    assert driver.chunks[name][-1].finish is FinishReason.ERROR
    assert driver.records[name].error_type == "engine_error"
    assert driver.chunks[other][-1].finish is FinishReason.LENGTH
    assert driver.engine.num_failed_steps == 0


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(UsageError, match=r"longpole\[structured\]"):
        Grammars("{}", [0])
