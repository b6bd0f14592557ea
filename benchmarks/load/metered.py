"""Run a command and print the CPU seconds of it and of all that it started (Linux).

python -m benchmarks.load.metered RESULT.json COMMAND ...
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

_BECOME_REAPER = 36
"""prctl(2): children whose parent ended become ours, so that their time is counted, too."""


def main() -> int:
    """The command's exit code."""
    ctypes.CDLL(None).prctl(_BECOME_REAPER, 1, 0, 0, 0)
    done = subprocess.run(sys.argv[2:], check=False)  # noqa: S603 - what the benchmark wrote
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(sys.argv[1]).write_text(json.dumps({"cpu_s": used.ru_utime + used.ru_stime}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
