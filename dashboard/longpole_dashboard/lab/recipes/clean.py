"""Nothing is wrong: both sides are the same, and the diagnosis must not invent anything."""

from typing import Final

from longpole_dashboard.lab.labels import NONE
from longpole_dashboard.lab.recipe import App, Load, Prefix, Recipe, Replicas, Side, Truth

_SIDES: Final = {
    "clean-calls": ("single calls of a quiet engine", Side()),
    "clean-agent": (
        "a workflow with a search, tools and a person",
        Side(App(retrieval_s=0.05, tools_s=(0.06, 0.06, 0.06), approval_s=0.1)),
    ),
    "clean-bursts": (
        "requests that come in bursts, before an engine of two seats",
        Side(App(answer=24), Load(cv2=4.0), replicas=Replicas({"max_num_seqs": 2})),
    ),
    "clean-sessions": (
        "sessions that read their documents from the cache",
        Side(App(prefix=Prefix.OWN, instructions=150), Load(turns=4, think_s=0.2)),
    ),
    "clean-hosted": (
        "a provider that tells nothing of its inside",
        Side(replicas=Replicas(is_hosted=True)),
    ),
}

RECIPES: Final = tuple(
    Recipe(name, f"nothing changes: {text}", Truth("normal", NONE), side, side)
    for name, (text, side) in _SIDES.items()
)
