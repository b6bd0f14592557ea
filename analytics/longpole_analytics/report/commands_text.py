"""The commands that tell again what a section says, as a shell reads them."""

import shlex

from longpole_analytics.report.base import Inputs
from longpole_analytics.report.weeks import iso
from longpole_analytics.top import slow_text


def command(inputs: Inputs, name: str, *options: str, is_windowed: bool = True) -> str:
    """``longpole NAME`` over the report's data, time and requests.

    Args:
        inputs: the report's.
        name: the command.
        options: more of it, each one word.
        is_windowed: it takes ``--since``, not ``--at`` alone.
    """
    window = inputs.window
    words = ["longpole", *name.split(), *options]
    if is_windowed:
        words += ["--since", iso(window.since_ns)]
    words += ["--at", iso(window.until_ns)]
    if inputs.where and is_windowed:
        words += ["--where", inputs.where]
    quoted = " ".join(shlex.quote(word) for word in words)
    return f"{quoted} {inputs.source}".strip()


def top_command(inputs: Inputs) -> str:
    """``longpole top`` with the report's measure of slow."""
    options = ["--metric", inputs.metric] if inputs.metric != "e2e_ms" else []
    slow = slow_text(inputs.slow)
    options += ["--slow", slow] if slow != "p95" else []
    return command(inputs, "top", *options)


def query_command(inputs: Inputs, sql: str) -> str:
    """``longpole query`` of a statement of one line."""
    return f"longpole query {shlex.quote(' '.join(sql.split()))} {inputs.source}".strip()
