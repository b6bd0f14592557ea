"""The table fact x library: each cell comes from a library's spans and the provider's truth."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.bars import Bar
from benchmarks.sdk import script
from benchmarks.sdk.bench import Bench
from benchmarks.sdk.environment import Unavailable, run_in
from benchmarks.sdk.libraries import LIBRARIES, OURS, Library
from benchmarks.sdk.reading import Told, is_near

NONE = "no span"


class Cell(NamedTuple):
    """What stands in the table, and whether it is true; ``None`` where nothing can be asked."""

    text: str
    is_right: bool | None


Cases = dict[str, Told]


class Row(NamedTuple):
    """One fact; ``cell`` gets the cases it names."""

    fact: str
    cases: tuple[str, ...]
    cell: Callable[..., Cell]


def _count(what: str, true: int) -> Callable[[Told], Cell]:
    def cell(told: Told) -> Cell:
        value, note = told.number(what)
        if value is None:
            return Cell("absent", False)
        if value != true:
            return Cell(f"{value:.0f} for {true}", False)
        return Cell(f"right{', ' + note if note else ''}", True)

    return cell


def _ttft(told: Told) -> Cell:
    value, note = told.ttft_ms()
    true = told.true_ttft_ms
    if value is None:
        return Cell("absent", False)
    text = f"{value:.0f}{' (' + note + ')' if note else ''}"
    is_right = is_near(value, true)
    return Cell(f"right {text}" if is_right else f"{text} for {true:.0f}", is_right)


def _no_ttft(told: Told) -> Cell:
    value, _ = told.ttft_ms()
    return Cell("absent (correct)", True) if value is None else Cell(f"{value:.0f}", False)


def _unasked(told: Told) -> Cell:
    value, _ = told.number("output")
    if told.truth[-1]["is_usage_asked"]:
        is_right = value == script.OUTPUT_TOKENS
        return Cell("right (it asks)" if is_right else f"asks, {value}", is_right)
    return Cell("absent" if value is None else f"invents {value:.0f}", False)


def _chunks(told: Told) -> Cell:
    true = len(told.truth[-1]["content_ns"])
    offsets = told.attributes.get("longpole.chunk.offsets_us")
    if offsets:
        sent = [(at - told.took["start_ns"]) / 1e6 for at in told.truth[-1]["content_ns"]]
        is_right = len(offsets) == true and all(
            is_near(at / 1e3, when) for at, when in zip(offsets, sent, strict=True)
        )
        return Cell(f"right, {len(offsets)} times" if is_right else "wrong times", is_right)
    num = sum("chunk" in name.lower() for span in told.spans for name, _ in span["events"])
    return Cell(f"{num} events for {true}", num == true) if num else Cell("absent", False)


def _tpot(told: Told) -> Cell:
    value, _ = told.number("tpot s")
    sent = told.truth[-1]["content_ns"]
    true = (sent[-1] - sent[0]) / 1e6 / (script.STREAMED_TOKENS["chat"] - 1)
    if value is None:
        return Cell("absent", False)
    is_right = abs(value * 1e3 - true) <= 0.5
    return Cell(f"{'right ' if is_right else ''}{value * 1e3:.1f} for {true:.1f}", is_right)


def _no_tpot(told: Told) -> Cell:
    value, _ = told.number("tpot s")
    return Cell("absent (correct)", True) if value is None else Cell(f"{value * 1e3:.1f}", False)


def _end(told: Told) -> Cell:
    true = (told.took["end_ns"] - told.took["start_ns"]) / 1e6
    first = (told.spans[0]["end_ns"] - told.spans[0]["start_ns"]) / 1e6
    return Cell(
        "yes" if is_near(first, true) else f"{first:.0f} for {true:.0f}", is_near(first, true)
    )


def _retry(told: Told) -> Cell:
    count = told.attributes.get("http.request.resend_count")
    if count is not None:
        statuses = told.attributes.get("longpole.attempt.status") or ()
        said = f" ({', '.join(map(str, statuses))})" if statuses else ""
        return Cell(f"resend_count = {count}{said}", count == len(told.truth) - 1)
    others = len(told.all_spans) - len(told.spans)
    return Cell(f"as {others} HTTP spans" if others >= len(told.truth) else "no", False)


def _failed(*all_told: Told) -> Cell:
    said = [
        "no span" if not told.spans else "right" if told.is_error() else "no error"
        for told in all_told
    ]
    text = said[0] if len(set(said)) == 1 else " / ".join(said)
    return Cell(text, set(said) == {"right"})


def _abandoned(told: Told) -> Cell:
    state = told.attributes.get("longpole.stream.state")
    status = told.spans[0]["status"]
    if state:
        return Cell(f"{state}, {status}", state in ("closed_early", "abandoned"))
    return Cell(f"status {status}, not told apart", False)


def _form(told: Told) -> Cell:
    """A form of the call is right when its times and its tokens are."""
    tokens, _ = told.number("output")
    if told.took["error"]:
        return Cell(f"breaks the application ({told.took['error']})", False)
    true_ms = (told.took["end_ns"] - told.took["start_ns"]) / 1e6
    notes = [] if is_near(told.longest_ms, true_ms) else [f"{told.longest_ms:.0f} ms"]
    if tokens != script.OUTPUT_TOKENS:
        notes.append("no tokens" if tokens is None else f"{tokens:.0f} tokens")
    return Cell(", ".join(notes) or "right", not notes)


def _slow(told: Told) -> Cell:
    hold = told.attributes.get("longpole.consumer.hold")
    text = f"span {told.longest_ms:.0f}"
    if hold is None:
        return Cell(f"{text}, not told apart", False)
    true_ms = 50.0 * 13  # every chunk the application saw
    return Cell(f"{text}, held {hold * 1e3:.0f}", is_near(hold * 1e3, true_ms))


def _headers(told: Told) -> Cell:
    text = json.dumps(told.attributes)
    found = [
        name for name, key in (("processing", "0.18"), ("request id", '"req_1"')) if key in text
    ]
    return Cell(" and ".join(found) or "no", len(found) == 2)


def _traceparent(told: Told) -> Cell:
    is_there = bool(told.truth[-1]["has_traceparent"])
    return Cell("yes" if is_there else "no", is_there)


def _once(told: Told) -> Cell:
    calls = [s for s in told.all_spans if s["attributes"].get("gen_ai.operation.name") == "chat"]
    others = [span for span in told.spans if span not in calls]
    num = len(calls) + len(others)
    traces = len({span["trace_id"] for span in (*calls, *others)})
    return Cell("once" if num == 1 else f"{num} spans in {traces} traces", num == 1)


_S = "messages stream"
ROWS = (
    Row("input tokens (chat stream)", ("chat",), _count("input", script.INPUT_TOKENS["chat"])),
    Row("input tokens (Anthropic)", (_S,), _count("input", script.INPUT_TOKENS["messages"])),
    Row("cached tokens", ("chat",), _count("cached", script.CACHED_TOKENS)),
    Row("cache write (Anthropic)", (_S,), _count("cache write", script.CACHE_WRITE_TOKENS)),
    Row("output tokens (chat stream)", ("chat",), _count("output", script.OUTPUT_TOKENS)),
    Row("output tokens (Anthropic stream)", (_S,), _count("output", script.OUTPUT_TOKENS)),
    Row("reasoning tokens", ("chat",), _count("reasoning", script.REASONING_TOKENS)),
    Row("output tokens, usage not asked for", ("chat no usage",), _unasked),
    Row("TTFT, chat stream", ("chat",), _ttft),
    Row("TTFT, headers late", ("chat late headers",), _ttft),
    Row("TTFT, role chunk early", ("chat early role",), _ttft),
    Row("TTFT, tool calls", ("chat tools",), _ttft),
    Row("TTFT, Responses", ("responses stream",), _ttft),
    Row("TTFT, Anthropic stream", (_S,), _ttft),
    Row("TTFT, Anthropic `.stream()`", ("messages helper",), _ttft),
    Row("TTFT of a call that did not stream", ("chat whole",), _no_ttft),
    Row("time of each chunk", ("chat",), _chunks),
    Row("TPOT, ms", ("chat",), _tpot),
    Row("TPOT of one token", ("chat one token",), _no_tpot),
    Row("span ends at the last chunk", ("chat",), _end),
    Row("2 x 429, then 200", ("chat retry",), _retry),
    Row("TTFT after the retries", ("chat retry",), _ttft),
    Row("bad request", ("chat bad request",), _failed),
    Row("error event in the stream", ("chat error event",), _failed),
    Row("Anthropic error event / cut", ("messages error event", "messages cut"), _failed),
    Row("Responses error event", ("responses error event",), _failed),
    Row("connection cut", ("chat cut",), _failed),
    Row("left by the application", ("chat abandoned",), _abandoned),
    Row("`.with_raw_response` stream", ("chat raw",), _form),
    Row("`.with_streaming_response`", ("chat streaming",), _form),
    Row("`.parse()`", ("chat parse",), _form),
    Row("Responses, not streamed", ("responses",), _form),
    Row("slow consumer (50 ms a chunk)", ("chat slow consumer",), _slow),
    Row("processing time and request id of headers", ("chat",), _headers),
    Row("traceparent reaches the server", ("chat",), _traceparent),
    Row("one Anthropic call counted", (_S,), _once),
)


def facts(bench: Bench) -> list[Bar]:
    """The table; the bar counts our cells that are not right."""
    columns: dict[str, dict[str, Cell]] = {}
    for name, library in LIBRARIES.items():
        try:
            took = run_in(library, "take_facts", bench.url)
        except Unavailable as error:
            bench.missing[name] = str(error)
            continue
        columns[name] = _column(library, took, _truths(bench))
    table = _markdown(columns)
    bench.say(table)
    bench.tables["facts"] = {
        "markdown": table,
        "cells": {
            name: {fact: cell._asdict() for fact, cell in column.items()}
            for name, column in columns.items()
        },
    }
    wrong = [fact for fact, cell in columns.get(OURS, {}).items() if cell.is_right is False]
    sides: dict[str, float | str] = {f"not_right_{i}": fact for i, fact in enumerate(wrong, 1)}
    for name, column in columns.items():
        sides[f"{name}_right"] = sum(cell.is_right is True for cell in column.values())
    sides["facts"] = len(ROWS)
    num_wrong = len(wrong) if OURS in columns else len(ROWS)
    return [Bar("facts of ours not right", num_wrong, "cells", "==", 0, sides)]


def _truths(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    truths: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in map(json.loads, bench.truth.open()):
        truths[line["case"]].append(line)
    return truths


def _column(
    library: Library, took: dict[str, Any], truths: dict[str, list[dict[str, Any]]]
) -> dict[str, Cell]:
    cases = {label: Told(case, truths[case["key"]]) for label, case in took.items()}
    column = {}
    for row in ROWS:
        told = [cases[label] for label in row.cases]
        if row.cases[0].startswith("messages") and not library.has_anthropic:
            column[row.fact] = Cell("n/a", None)
        elif row.cell is not _failed and not any(case.spans for case in told):
            broke = told[0].took["error"]
            column[row.fact] = Cell(f"breaks the application ({broke})" if broke else NONE, False)
        else:
            column[row.fact] = row.cell(*told)
    return column


def _markdown(columns: dict[str, dict[str, Cell]]) -> str:
    titles = [LIBRARIES[name].title for name in columns]
    lines = [f"| fact | {' | '.join(titles)} |", "| --- " * (len(titles) + 1) + "|"]
    for row in ROWS:
        cells = [column[row.fact] for column in columns.values()]
        shown = [f"**{c.text}**" if c.is_right is False else c.text for c in cells]
        lines.append(f"| {row.fact} | {' | '.join(shown)} |")
    return "\n".join(lines)
