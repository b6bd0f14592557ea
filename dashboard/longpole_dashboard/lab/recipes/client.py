"""The model is as fast as ever; what lies between it and the reader is not."""

from typing import Final

from longpole_dashboard.lab.recipe import App, Load, Recipe, Side, Truth
from longpole_engine.load.proxy import Fault

_BASE: Final = Side(App(answer=24), Load(num=60))
_LONG: Final = Side(App(answer=70), Load(num=60))

RECIPES: Final = (
    Recipe(
        "proxy-buffering",
        "a gateway holds every stream back until it is whole",
        Truth("client_slow", "proxy_buffering"),
        _LONG,
        _LONG.but(faults={Fault.BUFFER: 1.0}),
    ),
    Recipe(
        "slow-reader",
        "the application does something else for 30 ms after each chunk",
        Truth("client_slow", "slow_reader"),
        _BASE,
        _BASE.but(read_pause_s=0.03),
    ),
    Recipe(
        "far-away",
        "the way to the engines takes 400 ms longer",
        Truth("client_slow", "network"),
        _BASE,
        _BASE.but(delay_s=0.4),
    ),
)
