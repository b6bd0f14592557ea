"""What the measurements share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.sdk.environment import ROOT

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

    @contextmanager
    def target(self, ttft_s: float, gap_s: float) -> Iterator[str]:
        """The light provider in a process of its own; yields its address."""
        words = ["--ttft", str(ttft_s), "--gap", str(gap_s)]
        process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", "benchmarks.load.target", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(10)
            process.stdout.close()
