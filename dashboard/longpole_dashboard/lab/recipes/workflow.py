"""The workflow around the model is slow: search, tools, people."""

from typing import Final

from longpole_dashboard.lab.recipe import App, Recipe, Side, Truth

_BASE: Final = Side(App(retrieval_s=0.08, tools_s=(0.12, 0.12, 0.12), answer=6))

RECIPES: Final = (
    Recipe(
        "slow-retrieval",
        "the search before the call takes five times as long",
        Truth("high_ttft_retrieval", "retrieval"),
        _BASE,
        _BASE.but(retrieval_s=0.4),
    ),
    Recipe(
        "serial-tools",
        "three tools that ran side by side run one after another",
        Truth("workflow_slow_serial_tools", "serial_tools"),
        _BASE,
        _BASE.but(is_serial=True),
    ),
    Recipe(
        "slow-tools",
        "every tool takes four times as long",
        Truth("workflow_slow_serial_tools", "slow_tools"),
        _BASE,
        _BASE.but(tools_s=(0.48, 0.48, 0.48)),
    ),
    Recipe(
        "tool-tail",
        "one call in fourteen meets a tool that takes ten times as long",
        Truth("bad_tail", "tool_tail"),
        _BASE.but(num=140),
        _BASE.but(num=140, slow_tools=1 / 14, slow_factor=10.0),
    ),
    Recipe(
        "approval-wait",
        "a person must approve the answer",
        Truth("workflow_slow_wait", "approval"),
        _BASE,
        _BASE.but(approval_s=0.8),
    ),
)
