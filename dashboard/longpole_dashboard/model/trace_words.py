"""What is doubtful about a trace, in plain words."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from longpole.vocab import Span, Stage
from longpole_analytics.explain import opaque_share
from longpole_analytics.stages import TracePartition
from longpole_dashboard.model import text

_OF_TRACES: Final[dict[str, str]] = {
    "duplicate_span": "{n} span(s) came twice; the more complete one counts",
    "unfinished_span": "{n} span(s) have no end yet and are left out",
    "negative_duration": "{n} span(s) ended before they started; taken as 0 ms",
    "cycle": "{n} parent link(s) run in a circle and were cut",
    "incomplete_trace": "{n} span(s) name a parent that never arrived",
    "clock_skew": "{n} clock(s) disagreed with the root's and were moved",
    "skew_uncertain": "the clocks contradict each other; their shift is a guess",
    "skew_too_large": "{n} clock(s) are too far off to be moved",
    "stream_outlives_parent": "a stream went on after its parent ended",
    "overhang_detached": "{n} span(s) outlived their parent: nobody waited for them",
    "overhang_clipped": "{n} span(s) of another process outlived their parent and were cut",
    "stream_tail_unknown": "when the last token came is unknown; decoding is taken to the end",
    "call_opaque": "no engine spans and no stream: what a model call did is unknown",
    "network_negative": "an engine claims more time than its caller waited",
}
"""Flag -> what it means for the reader; a flag that is not here is shown by its name."""

_OF_SPANS: Final[dict[str, str]] = {
    "hidden_reasoning": "{n} call(s) reasoned without streaming it: that time is in their TTFT",
    "tokens_from_chunks": "{n} call(s) sent no usage: the tokens of their chunks were added up",
    "tokens_estimated": "{n} call(s) have tokens that the sender's library counted by itself",
    "output_tokens_partial": "{n} call(s) have an early count of output tokens",
    "no_start_time": "{n} span(s) had no start; their end stands for it",
    "attributes_cut": "{n} span(s) had more or larger attributes than are kept",
    "invalid_utf8": "text of {n} span(s) was no UTF-8 and was repaired",
    "truncated": "{n} span(s) ended before their call did",
    "incomplete": "{n} stream(s) came without finish reason and usage",
    "ttft_first_event": "the TTFT of {n} call(s) is that of the first event, which may be empty",
    "ttft_after_headers": "the TTFT of {n} call(s) begins at the response headers: it is too short",
    "chunks_dropped": "the sender dropped events of {n} stream(s)",
}
"""Flags of single spans that make what is shown here less sure; the others are facts of a call."""


def doubts(split: TracePartition, spans: Iterable[Span]) -> tuple[str, ...]:
    """A phrase for each doubt; empty when there is none."""
    said = [
        _OF_TRACES.get(flag, flag.replace("_", " ")).format(n=split.tree.marks.get(flag, 1))
        for flag in split.flags
    ]
    said += [
        f"clock of {instance} moved by {shift / 1e6:+,.3f} ms"
        for instance, shift in split.shifts_ns.items()
    ]
    counts = Counter(flag for span in spans for flag in span.flags)
    said += [words.format(n=counts[flag]) for flag, words in _OF_SPANS.items() if counts[flag]]
    return tuple(said)


def opaque_reason(split: TracePartition) -> str:
    """Why time to first content is opaque; empty where it is not."""
    share = opaque_share(split)
    if not share or not split.critical_ns(Stage.TTFT_OPAQUE):
        return ""
    blind = sum(call.engine is None for call in split.calls)
    why = (
        f"no engine span came with {blind} of {text.counted(len(split.calls), 'model call')}"
        if blind
        else "the engine's account is shorter than its caller's wait"
    )
    return f"opaque TTFT: {text.percent(share, 0)} of the wait for first content, since {why}"
