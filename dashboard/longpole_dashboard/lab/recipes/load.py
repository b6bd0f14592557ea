"""More comes, or other things come."""

from typing import Final

from longpole_dashboard.lab.recipe import App, Load, Recipe, Replicas, Side, Truth

_SEATS: Final = Side(
    App(answer=30), Load(of_capacity=0.35, num=120), replicas=Replicas({"max_num_seqs": 2})
)
_ANSWERS: Final = Side(App(question=6, answer=60), Load(of_capacity=0.25, cv2=0.02, num=80))
_BASE: Final = Side(App(question=20))
_QUIET: Final = Side(App(question=20), Load(of_capacity=0.12, num=40))
"""Long prompts hold up others' tokens: where few meet, the mix is all that moves."""

RECIPES: Final = (
    Recipe(
        "burst-over-capacity",
        "for a while twice as many requests come as the engine can serve",
        Truth("load_saturation", "queue_saturation"),
        _SEATS,
        _SEATS.but(of_capacity=2.0, max_per_s=1000.0),
    ),
    Recipe(
        "contention",
        "the same requests come eight at a time: there are seats for all, and each is slower",
        Truth("load_saturation", "contention"),
        _ANSWERS,
        _ANSWERS.but(group=8),
    ),
    Recipe(
        "longer-inputs",
        "questions are ten times as long, and the engine is as fast as ever",
        Truth("mix_longer_inputs", "longer_inputs"),
        _QUIET,
        _QUIET.but(question=200),
    ),
    Recipe(
        "longer-outputs",
        "answers are five times as long, and the engine is as fast as ever",
        Truth("mix_longer_outputs", "longer_outputs"),
        _BASE,
        _BASE.but(answer=60),
    ),
    Recipe(
        "mixed-lengths",
        "one answer in eleven is twelve times as long as the others",
        Truth("bad_tail", "mixed_lengths"),
        _BASE.but(num=110),
        _BASE.but(num=110, long_answers=0.091, long_factor=12.0),
    ),
)
