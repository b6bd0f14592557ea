"""Attempts that fail are made again."""

from typing import Final

from longpole_dashboard.lab.recipe import App, Recipe, Side, Truth
from longpole_engine.load.proxy import Fault

_BASE: Final = Side(App(retrieval_s=0.05, answer=6))

RECIPES: Final = (
    Recipe(
        "retry-storm",
        "nine attempts in twenty are refused with 429 and a Retry-After, some three times in a row",
        Truth("workflow_slow_retries", "retry_storm"),
        _BASE,
        _BASE.but(faults={Fault.RATE_LIMIT: 0.45}),
    ),
    Recipe(
        "few-retries",
        "one attempt in eleven meets an error of the server, and the next one does not",
        Truth("bad_tail", "retry_storm"),
        _BASE.but(num=110),
        _BASE.but(num=110, faults={Fault.ERROR: 0.095}, is_even=True),
    ),
)
