"""The engine is slow: before the first token, or between tokens."""

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

_UNCACHED: Final = {"is_prefix_cached": False}
_TINY_STEPS: Final = {"max_step_tokens": 8}
_PROMPTS: Final = Side(App(instructions=200, answer=6), Load(num=50), replicas=Replicas(_UNCACHED))
_SEATS: Final = Side(load=Load(num=60), replicas=Replicas({"max_num_seqs": 2}))
_HOSTED: Final = _SEATS.but(is_hosted=True)
_MANY: Final = Side(
    App(answer=4),
    Load(of_capacity=0.25, max_per_s=30.0, num=169),
    Door(delay_s=0.25),
    Replicas(num_engines=13),
)
"""As far away as a provider is: what the machine does to a call is little beside that."""
_SOME_CHANCE: Final = 0.4
"""Temperature: enough to make drafts wrong, and not so much that nothing to draft recurs."""
_DRAFTS: Final = Side(
    App(answer=40),
    Load(of_capacity=0.25, group=16, num=80),
    replicas=Replicas(
        {"max_num_seqs": 16, "speculation": "ngram", "num_drafts": 6, "is_draft_dynamic": False}
    ),
)
_ROOM: Final = Side(
    App(instructions=2, question=3, answer=110, prefix=Prefix.OWN),
    Load(group=8, num=80),
    replicas=Replicas(_UNCACHED),
)
_VISITS: Final = Side(
    load=Load(num=50, turns=20, think_s=0.03, pause_every=5, pause_s=0.9),
)
_HITS: Final = Side(
    App(instructions=160, question=120, question_spread=0.9, answer=4, fresh=0.45),
    Load(num=90),
    Door(routing=Routing.HOME),
    Replicas({"max_num_seqs": 2}, num_engines=2, is_hosted=True),
)

RECIPES: Final = (
    Recipe(
        "slow-prefill",
        "the engine takes prompts in pieces of 8 tokens",
        Truth("high_ttft_prefill", "slow_prefill"),
        _PROMPTS,
        _PROMPTS.but(settings={**_UNCACHED, **_TINY_STEPS}),
    ),
    Recipe(
        "neighbour",
        "another customer's requests fill the engine's seats",
        Truth("high_ttft_queue", "queue"),
        _SEATS,
        _SEATS.but(neighbour=3),
    ),
    Recipe(
        "hosted-wait",
        "a provider lets requests wait and does not say why",
        Truth("high_ttft_opaque", "opaque"),
        _HOSTED,
        _HOSTED.but(neighbour=3),
    ),
    Recipe(
        "cold-start",
        "the engine is stopped in every pause, and the next request waits for its start",
        Truth("high_ttft_cold_start", "cold_start"),
        _VISITS,
        _VISITS.but(idle_s=0.5),
    ),
    Recipe(
        "bad-replica",
        "one replica of thirteen lies behind a bad link",
        Truth("bad_tail", "one_replica"),
        _MANY,
        _MANY.but(odd_delay_s=1.2),
    ),
    Recipe(
        "poor-drafts",
        "answers are drawn at random, so that drafted tokens are rarely right",
        Truth("high_tpot", "draft_acceptance"),
        _DRAFTS,
        _DRAFTS.but(temperature=_SOME_CHANCE),
    ),
    Recipe(
        "eviction",
        "keys and values have room for two fifths of what runs, so that requests are put back",
        Truth("load_saturation", "preemption"),
        _ROOM,
        _ROOM.but(settings={**_UNCACHED, "kv_pages": 40}),
    ),
    Recipe(
        "hot-replica",
        "prompts with a known beginning all go to one replica, which is busy with other work",
        Truth("cache_hit_no_speedup", "hot_replica"),
        _HITS,
        _HITS.but(neighbour=3),
    ),
)
