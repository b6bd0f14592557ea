"""The data-quality marks of calls and traces."""

import re
from pathlib import Path

from reference_pages.base import ROOT, page, table

OF_CALLS = {
    "not_streamed": "the answer came in one piece: no TTFT",
    "no_content": "a stream without text, reasoning or tool call: no TTFT",
    "no_visible_text": "no text, as of a tool call alone: no time to the first visible text",
    "retried": "more than one attempt",
    "hidden_reasoning": "reasoning that was not streamed: its tokens belong to TTFT and are not "
    "counted in TPOT",
    "tokens_from_chunks": "no usage record: the counts of the chunks were added up",
    "tokens_unknown": "no count at all: no TPOT",
    "one_token": "one token: no TPOT",
    "single_burst": "all content came at once: no TPOT",
    "no_start_time": "the span had no start; its end stands for it",
    "negative_duration": "it ended before it began; the end was set to the start",
    "attributes_cut": "there were more or larger attributes than are kept",
    "invalid_utf8": "some of its text was no UTF-8 and was repaired",
    "input_excluded_cache": "the sender's input left cached tokens out; they were added",
    "output_tokens_partial": "the count sent was an early one, from before the answer",
    "tokens_estimated": "the sender's library counted tokens by itself",
    "truncated": "the span ended before its call did, mostly at the response headers",
    "incomplete": "a streamed call of which neither finish reason nor usage arrived",
    "stream_head": "ended at the headers; another span, the summary, tells the rest",
    "stream_summary": "that other span",
    "failed_attempt": "a failed attempt in a span of its own",
    "ttft_first_event": "the sender's TTFT is that of the first event of any kind",
    "ttft_first_content": "the sender's TTFT is that of the first content",
    "ttft_after_headers": "the sender's TTFT begins at the response headers",
    "joined_event": "facts of a log event were joined to the span",
    "engine_side": "only the engine tells of the call: no client's span",
    "chunks_dropped": "the sender dropped some of the stream's events",
}
OF_TRACES = {
    "duplicate_span": "a span came twice; it counts once",
    "unfinished_span": "a span without an end; it is not on the path",
    "cycle": "spans that name each other as parents; cut above the earliest",
    "incomplete_trace": "a parent is missing; left out of statistics over many traces",
    "clock_skew": "the clock of an instance was shifted to fit its caller's; raw times are kept",
    "skew_uncertain": "no shift fits all pairs; the largest was put into its parent's middle",
    "skew_too_large": "more than the limit; not shifted",
    "stream_outlives_parent": "a stream went on after its parent ended; clipped and kept",
    "overhang_detached": "a child of the same process ended after its parent, which did not wait",
    "overhang_clipped": "a child of another process ended after its parent; clipped",
    "stream_tail_unknown": "when the last content came is not known: stream and decode are one",
    "call_opaque": "a call of which only the whole is known",
    "network_negative": "the engine tells more time than the client saw; nothing is left for the "
    "network",
    "call_elsewhere": "the trace only tells again of another trace's call",
}


def flags() -> str:
    """The marks, each of which must occur in the code, and all that the code lists."""
    known = {**OF_CALLS, **OF_TRACES}
    missing = listed() - set(known)
    if missing:
        raise LookupError(f"nothing says what these flags mean: {sorted(missing)}")
    source = "".join(path.read_text("utf-8") for path in sources())
    gone = [name for name in known if not re.search(f"[\"']{name}[\"']", source)]
    if gone:
        raise LookupError(f"no code sets these flags: {gone}")
    head = ("flag", "what")
    parts = [
        "## Of calls\n\n" + table(head, [(f"`{name}`", what) for name, what in OF_CALLS.items()]),
        "## Of traces\n\nA trace has those of its spans, and:\n\n"
        + table(head, [(f"`{name}`", what) for name, what in OF_TRACES.items()]),
    ]
    intro = (
        "The column `flags` of the views says what is doubtful about a row, and what was repaired. "
        "The view [`quality`](views.md#quality) counts, for "
        "each sender, what its calls lack."
    )
    return page("Data-quality flags", intro, *parts)


def sources() -> list[Path]:
    """The code that may set a flag."""
    return [
        path
        for wing in ("instrumentation", "collector", "analytics")
        for path in sorted((ROOT / wing).rglob("*"))
        if path.suffix in (".py", ".sql")
    ]


def listed() -> set[str]:
    """Flags that the code lists or appends by name."""
    from longpole_analytics.bulk.columns import FLAGS
    from longpole_collector.bulk.steps import FLAG_NAMES

    found = {*FLAGS, *FLAG_NAMES}
    setting = re.compile(r"""flags(?:"\])?\.append\("(\w+)"\)|tree\.mark\("(\w+)\"""")
    for path in sources():
        for pair in setting.findall(path.read_text("utf-8")):
            found.update(filter(None, pair))
    return found
