"""The JSON documents that commands print."""

import json
import re
from collections.abc import Callable, Iterator

from reference_pages.base import ROOT, SAMPLE, page, table

HALVES = "\"prompt_version='v1'\" \"prompt_version='v2'\""
DOCUMENTS = (
    f"explain 832f4effd468 --file {SAMPLE}",
    f"top {SAMPLE}",
    f"shapes {SAMPLE} --baseline \"prompt_version='v1'\" --current \"prompt_version='v2'\"",
    f"slices --file {SAMPLE} --by prompt_version --metric ttft_ms",
    f"whatif --file {SAMPLE} --stage prefill --faster-by 0.5",
    f"queueing --file {SAMPLE} --servers 1",
    f"measures --file {SAMPLE}",
    f"cache {SAMPLE}",
    f"compare {HALVES} --file {SAMPLE} --target p50:ttft_ms",
    f"advise {SAMPLE}",
    f"audit {SAMPLE}",
    f"report --file {SAMPLE} --week 2026-W48",
    f'query "SHOW TABLES" --file {SAMPLE}',
)
"""Commands whose ``--json`` is shown."""


Run = Callable[[str], str]
"""Runs a command line, gives what it printed on stdout."""


def documents(run: Run) -> str:
    """The documents that commands print, with the keys they have on the sample data."""
    parts, shown = [], set()
    for line in DOCUMENTS:
        document = json.loads(run(f"longpole {line} --json"))
        rows = [(f"`{key}`", kind_of(value)) for key, value in document.items()]
        head = f"## `{document['schema']}`\n\n```\nlongpole {line} --json\n```\n\n"
        parts.append(head + table(("key", "what"), rows))
        shown.add(document["schema"])
    others = sorted(set(_schemas()) - shown)
    parts.append(
        "## Others\n\n"
        + ", ".join(f"`{name}`" for name in others)
        + ": of commands that need a configuration, a store or a receiver."
    )
    intro = (
        "`--json` prints one document on stdout; its `schema` names it and its version. Here are "
        "the keys of the top level, as the commands print them on the sample data."
    )
    return page("JSON documents", intro, *parts)


def _schemas() -> Iterator[str]:
    for wing in ("instrumentation", "collector", "analytics", "dashboard", "reference_engine"):
        for path in (ROOT / wing).rglob("*.py"):
            yield from re.findall(
                r'(?:SCHEMA: Final|SCHEMA|"schema":)(?: =)? "(longpole\.[a-z_]+/\d+)"',
                path.read_text("utf-8"),
            )


def kind_of(value: object) -> str:
    """What a value is, in a word; of a list, what it lists."""
    if isinstance(value, list):
        kinds = sorted({kind_of(each) for each in value})
        return f"list of {' or '.join(kinds)}" if kinds else "list, empty here"
    if isinstance(value, bool):
        return "true or false"
    words = {str: "text", int: "number", float: "number", dict: "object", type(None): "null here"}
    return words[type(value)]
