"""How stages and the whole dashboard look: one label and one colour per stage, everywhere.

The colours are the vocabulary's; ``ttft_opaque`` shares ``prefill``'s and is hatched, so colour is
never the only cue.
"""

from typing import Final, NamedTuple

from longpole.vocab import STAGE_COLOURS, STAGE_DOC, Stage


class StageLook(NamedTuple):
    """What a stage is called on the page, its colour, whether it is hatched, what it means."""

    label: str
    colour: str
    is_hatched: bool
    doc: str


_LABELS: Final = {Stage.TTFT_OPAQUE: "opaque TTFT"}

LOOKS: Final[dict[str, StageLook]] = {
    stage.value: StageLook(
        _LABELS.get(stage, stage.value.replace("_", " ")),
        STAGE_COLOURS[stage],
        stage is Stage.TTFT_OPAQUE,
        STAGE_DOC[stage],
    )
    for stage in Stage
}
"""Stage name -> its look, in the order a request meets the stages."""


def look(stage: str | None) -> StageLook:
    """The look of a stage; an unknown or absent stage looks like ``other``."""
    return LOOKS.get(stage or Stage.OTHER, LOOKS[Stage.OTHER])


STREAMLIT_THEME: Final[dict[str, str | list[str]]] = {
    "theme.headingFontSizes": ["1.9rem", "1.5rem", "1.2rem"],
    "theme.light.primaryColor": "#2f5d8a",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f5f6f7",
    "theme.light.textColor": "#1f2328",
    "theme.light.borderColor": "#dfe2e6",
    "theme.dark.primaryColor": "#7fb0dd",
    "theme.dark.backgroundColor": "#14171b",
    "theme.dark.secondaryBackgroundColor": "#1d2126",
    "theme.dark.textColor": "#e4e7eb",
    "theme.dark.borderColor": "#343a41",
}
"""Streamlit's theme options, light and dark; the reader's system chooses between them."""
