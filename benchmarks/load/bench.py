"""What the measurements share."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.child import serving

from longpole_engine.models.loader import load


@dataclass
class Bench:
    """A folder for what the generators write, a tokenizer, and the size of it all.

    Attributes:
        folder: scratch.
        scale: numbers of requests are multiplied by this; below 1 only tries the scripts.
        say: prints a line.
        missing: generators that did not run, with the reason.
    """

    folder: Path
    scale: float = 1.0
    say: Callable[[str], None] = field(default=lambda text: None)
    missing: dict[str, str] = field(default_factory=dict)
    num_folders: int = 0

    def num(self, number: int, least: int = 20) -> int:
        """A number of requests at this scale."""
        return max(least, int(number * self.scale))

    def out(self, name: str) -> Path:
        """A name for a new folder."""
        self.num_folders += 1
        return self.folder / f"{self.num_folders}-{name}"

    def tokenizer(self, model: str = "tiny") -> Path:
        """A folder with a model's tokenizer as Hugging Face keeps it."""
        folder = self.folder / f"tokenizer-{model}"
        if not folder.exists():
            folder.mkdir()
            (folder / "tokenizer.json").write_text(load(model).text.tokenizer_json)
            about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
            (folder / "tokenizer_config.json").write_text(json.dumps(about))
        return folder

    def target(self, ttft_s: float, gap_s: float) -> AbstractContextManager[str]:
        """The light provider in a process of its own; gives its address."""
        return serving("benchmarks.load.target", "--ttft", str(ttft_s), "--gap", str(gap_s))
