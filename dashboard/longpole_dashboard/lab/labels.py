"""Sub-causes by label: what a verdict's words say, in words that can be counted."""

from typing import Final

NONE: Final = "none"
OTHER: Final = "other"
"""The verdict says something that no recipe is about."""

LABELS: Final[dict[str, str]] = {
    "one_replica": "one replica:",
    "preemption": "requests are preempted",
    "draft_acceptance": "poor draft acceptance",
    "timestamp": "changes from call to call",
    "tool_order": "tools in another order",
    "template_edit": "the prompt was edited",
    "ttl": "the prefix had expired",
    "routing_scatter": "the prefix lies at another replica",
    "cache_lost": "prompt cache lost",
    "proxy_buffering": "proxy buffering",
    "network": "network",
    "slow_reader": "reading the stream",
    "retry_storm": "retry storm",
    "retries": "retries",
    "approval": "a person's answer",
    "serial_tools": "one after another",
    "slow_tools": "slower tools",
    "tool_tail": "tool tail",
    "mixed_lengths": "mixed lengths",
    "queue_saturation": "queue saturation",
    "contention": "batch policy|contention",
    "stalls": "stalls",
    "cold_start": "cold requests",
    "retrieval": "retrieval before the call",
    "slow_prefill": "slow prefill",
    "queue": "queue",
    "hot_replica": "hits take as long as misses",
    "opaque": "no stage explains it",
    "longer_inputs": "inputs grew",
    "longer_outputs": "outputs grew",
    NONE: "",
}
"""Label -> the words that a verdict says it in, alternatives parted by a bar; the first counts."""


def label(sub_cause: str | None) -> str:
    """The label of a verdict's sub-cause; :data:`NONE` where it says none."""
    if not sub_cause:
        return NONE
    for name, words in LABELS.items():
        if words and any(each in sub_cause for each in words.split("|")):
            return name
    return OTHER
