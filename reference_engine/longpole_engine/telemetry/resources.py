"""What the machine gives while steps run: processor, memory, GPU, and bytes read for weights.

Read a few times a second, off the step's thread, and joined to the steps of the same interval.
"""

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from longpole_engine.telemetry.events import now_ns
from longpole_engine.telemetry.steps import StepLog

_STATM = Path("/proc/self/statm")


class Sample(NamedTuple):
    """One interval; shares are of one core or one GPU, unknown is ``None``.

    ``busy_share`` is the part of the interval that steps filled; ``read_bytes_s`` the bytes that
    the model read in them, over their time.
    """

    start_ns: int
    end_ns: int
    cpu_share: float
    rss_bytes: int
    gpu_share: float | None
    gpu_bytes: int | None
    first_step: int | None
    last_step: int | None
    busy_share: float
    read_bytes_s: float | None


class Sampler:
    """Takes samples, each from the one before to now.

    Args:
        log: the engine's steps.
        read_bytes: bytes that a step of so many rows of decoding and of prompts reads.
    """

    def __init__(self, log: StepLog, read_bytes: Callable[[int, int], int]) -> None:
        self._log, self._read_bytes = log, read_bytes
        self._at_ns, self._cpu_s = now_ns(), time.process_time()

    def take(self) -> Sample:
        """The interval since the last call."""
        start_ns, self._at_ns = self._at_ns, now_ns()
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        seconds = max(1, self._at_ns - start_ns) / 1e9
        steps = [s for s in self._log.between(start_ns, self._at_ns) if s.end_ns <= self._at_ns]
        busy_s = sum(step.end_ns - max(step.start_ns, start_ns) for step in steps) / 1e9
        whole_s = sum(step.end_ns - step.start_ns for step in steps) / 1e9
        num_bytes = sum(
            self._read_bytes(
                sum(piece.num_tokens + piece.num_drafts for piece in step.plan.decode),
                sum(piece.num_tokens for piece in step.plan.prefill),
            )
            for step in steps
        )
        return Sample(
            start_ns,
            self._at_ns,
            (self._cpu_s - cpu_s) / seconds,
            rss_bytes(),
            *gpu(),
            steps[0].id if steps else None,
            steps[-1].id if steps else None,
            busy_s / seconds,
            num_bytes / whole_s if whole_s else None,
        )


def rss_bytes() -> int:
    """Resident memory of this process; where the system does not say, the most there was."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def gpu() -> tuple[float | None, int | None]:
    """Share of time a kernel ran and memory in use of the current GPU; the share needs NVML."""
    if not torch.cuda.is_available():
        return None, None
    free, total = torch.cuda.mem_get_info()
    try:
        share: float | None = torch.cuda.utilization() / 100
    except (ImportError, RuntimeError):  # no binding of NVML, or no permission
        share = None
    return share, total - free
