"""The prompts' common beginning is no longer found in the cache, for five different reasons."""

from typing import Final

from longpole_dashboard.lab.recipe import (
    App,
    Door,
    Load,
    Prefix,
    Recipe,
    Replicas,
    Routing,
    Side,
    Truth,
)

PREFIX_LIFE_S: Final = 1.2
"""What the lab's provider says of its cache."""
_NAME: Final = "high_ttft_prefill"
_BASE: Final = Side(App(instructions=400, answer=6), Load(num=50))
_EDITED: Final = Side(App(instructions=400, answer=6))
_SESSIONS: Final = Side(
    App(instructions=400, answer=6, prefix=Prefix.OWN),
    Load(turns=4, think_s=0.25, num=60),
    Door(prefix_life_s=PREFIX_LIFE_S),
)
_SCATTERED: Final = Side(
    _SESSIONS.app, _SESSIONS.load, Door(routing=Routing.AFFINITY), Replicas(num_engines=5)
)

RECIPES: Final = (
    Recipe(
        "prefix-timestamp",
        "the time of day stands before the instructions",
        Truth(_NAME, "timestamp"),
        _BASE,
        _BASE.but(prefix=Prefix.TIMESTAMP),
    ),
    Recipe(
        "prefix-tool-order",
        "the tools are listed in another order each time",
        Truth(_NAME, "tool_order"),
        _BASE,
        _BASE.but(prefix=Prefix.SHUFFLED_TOOLS),
    ),
    Recipe(
        "prefix-edited",
        "somebody edits the instructions all day, each time as a new version",
        Truth(_NAME, "template_edit"),
        _EDITED,
        _EDITED.but(prefix=Prefix.EDITED),
    ),
    Recipe(
        "prefix-expired",
        "users think longer than the provider keeps a prefix",
        Truth(_NAME, "ttl"),
        _SESSIONS,
        _SESSIONS.but(think_s=1.6),
    ),
    Recipe(
        "prefix-scattered",
        "requests go round-robin over five replicas, each with its own cache",
        Truth(_NAME, "routing_scatter"),
        _SCATTERED,
        _SCATTERED.but(routing=Routing.ROUND_ROBIN),
    ),
)
