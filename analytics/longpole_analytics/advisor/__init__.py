"""The advisor: what to change, ranked by the time it would save users.

Each rule is one file here (constant ``ADVICE``); ``base`` holds what rules get and return, files
that begin with an underscore what they share. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longpole_analytics.advisor._advise import Advice, Report, advise
    from longpole_analytics.advisor._population import Population, population
    from longpole_analytics.advisor._thresholds import AdvisorRules

__all__ = ["Advice", "AdvisorRules", "Population", "Report", "advise", "population"]

_FILES = {
    "Advice": "_advise",
    "AdvisorRules": "_thresholds",
    "Population": "_population",
    "Report": "_advise",
    "advise": "_advise",
    "population": "_population",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
