"""Compiled: whose facts the row of a trace takes; the rules are those of ``rollup``."""
# numba types these functions itself: its numbers are neither int nor numpy's to mypy
# mypy: disable-error-code="no-any-return"

from typing import Final

from longpole_analytics.bulk.columns import NO_TEXT, NONE, STAGES, Columns, Facts
from longpole_analytics.bulk.compiled import Bools, Ints, Records, jit
from longpole_analytics.bulk.rooms import Desk, Rows

_TOOL: Final = STAGES.index("tool")


@jit
def state_facts(
    columns: Columns,
    facts: Facts,
    num: int,
    num_calls: int,
    spans: Records,
    known: Records,
    desk: Desk,
    rows: Rows,
    trace: int,
) -> None:
    """Fill the row of a trace, its times and stages apart (``rollup.roll_up``).

    Args:
        columns: the spans.
        facts: what they say of the whole.
        num: how many spans the trace has.
        num_calls: how many calls it has.
        spans: the trace.
        known: what is known of the calls.
        desk: room for lists.
        rows: gets the row; ``root_row`` is known.
        trace: its place there.
    """
    root = rows.root_row[trace]
    stated = _stated(columns, facts, num, spans, root)
    rows.first_row[trace] = root if root >= 0 else spans[0].row
    rows.stated_row[trace] = stated
    rows.time_to_useful_ns[trace] = _since(columns, facts.time_to_useful_ns, stated, root)
    rows.time_to_accepted_ns[trace] = _since(columns, facts.time_to_accepted_ns, stated, root)
    rows.num_spans[trace] = num
    rows.num_calls[trace] = num_calls
    for i in range(num):
        rows.num_tools[trace] += columns.stage[spans[i].row] == _TOOL
        rows.flags[trace] |= columns.flags[spans[i].row]
    inputs = cached = outputs = NONE
    for c in range(num_calls):
        i = spans[c].call
        engine = spans[i].engine if spans[i].engine >= 0 else i
        rows.num_retries[trace] += max(known[i].num_attempts, 1) - 1
        inputs = _plus(inputs, known[i].input_tokens, known[engine].input_tokens)
        cached = _plus(cached, known[i].cached_input_tokens, known[engine].cached_input_tokens)
        outputs = _plus(outputs, known[i].output_tokens, known[engine].output_tokens)
        desk.first[c] = known[i].route_row
        desk.second[c] = known[i].route_version_row
        desk.third[c] = known[i].slo_class_row
    rows.input_tokens[trace] = inputs
    rows.cached_input_tokens[trace] = cached
    rows.output_tokens[trace] = outputs
    around = (root, stated, num, num_calls, spans)
    rows.route_row[trace] = _source(facts.has_route, desk.first, *around)
    rows.route_version_row[trace] = _source(facts.has_route_version, desk.second, *around)
    rows.slo_class_row[trace] = _source(facts.has_slo_class, desk.third, *around)
    rows.prompt_row[trace] = _prompt(facts, known, *around)


@jit
def _stated(columns: Columns, facts: Facts, num: int, spans: Records, root: int) -> int:
    """The row of the span whose facts hold for the whole trace, or -1."""
    if root >= 0 and facts.has_outcome[root]:
        return root
    for i in range(num):
        if columns.is_workflow[spans[i].row]:
            return spans[i].row
    return root


@jit
def _source(
    is_known: Bools, told: Ints, root: int, stated: int, num: int, num_calls: int, spans: Records
) -> int:
    """The row that a fact is taken from, or -1; ``told`` has the rows of the calls."""
    if root >= 0 and is_known[root]:
        return root
    if stated >= 0 and is_known[stated]:
        return stated
    for c in range(num_calls):
        if told[c] >= 0:
            return told[c]
    for i in range(num):
        if is_known[spans[i].row]:
            return spans[i].row
    return -1


@jit
def _prompt(
    facts: Facts, known: Records, root: int, stated: int, num: int, num_calls: int, spans: Records
) -> int:
    """The row that the prompt version is taken from, or -1."""
    shared = -1
    for c in range(num_calls):
        row = known[spans[c].call].prompt_row
        if row < 0:
            continue
        if shared >= 0 and facts.prompt[shared] != facts.prompt[row]:
            return -1
        shared = row
    if shared >= 0:
        return shared
    if root >= 0 and facts.prompt[root] != NO_TEXT:
        return root
    if stated >= 0 and facts.prompt[stated] != NO_TEXT:
        return stated
    for i in range(num):
        if facts.prompt[spans[i].row] != NO_TEXT:
            return spans[i].row
    return -1


@jit
def _since(columns: Columns, times: Ints, stated: int, root: int) -> int:
    if stated < 0 or times[stated] == NONE:
        return NONE
    if root < 0:
        return times[stated]
    return times[stated] + max(columns.start_ns[stated] - columns.start_ns[root], 0)


@jit
def _plus(total: int, value: int, engine_value: int) -> int:
    """A sum over calls with one more; where the client does not know, its engine may."""
    if value == NONE:
        value = engine_value
    if value == NONE:
        return total
    return value if total == NONE else total + value
