"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

_PACKAGES = (
    "longpole", "duckdb", "pyarrow", "numba", "protobuf", "grpcio", "uvicorn", "uvloop",
    "httptools", "streamlit", "torch",
)  # fmt: skip
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16")


def facts() -> dict[str, float | str]:
    """Cores, processor, memory, load and versions (Linux)."""
    cpu = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.+)$", cpu, re.MULTILINE)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found: dict[str, float | str] = {
        "num_cores": len(os.sched_getaffinity(0)),
        "processor": model[1] if model else platform.machine(),
        "instructions": " ".join(kind for kind in _INSTRUCTIONS if f" {kind} " in cpu),
        "memory_gib": round(pages / (1 << 30), 1),
        "load_average_1_min": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    return found | {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        return "not installed"
