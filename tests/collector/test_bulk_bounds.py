"""The compiled loops stay inside their arrays: the same tests again, with every index checked."""

import os
import subprocess
import sys
from pathlib import Path


def test_no_index_is_out_of_bounds_on_broken_bodies():
    tests = Path(__file__).with_name("test_bulk.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(tests), "-k", "broken or room or content"],
        env=os.environ | {"NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "4 passed" in done.stdout
