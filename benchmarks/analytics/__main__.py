"""All benchmarks of the analytics, each in a process of its own; 1 if one of them missed a bar.

python -m benchmarks.analytics [NAME,NAME ...]
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run those named, by default every file of this folder that has a ``main``."""
    here = Path(__file__).parent
    names = sorted(path.stem for path in here.glob("[!_]*.py") if "def main" in path.read_text())
    if len(sys.argv) > 1:
        names = sys.argv[1].split(",")
    missed = []
    for name in names:
        print(f"\n{name}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"{__package__}.{name}"], check=False)  # noqa: S603
        if done.returncode:
            missed.append(name)
    print(f"\nmissed: {', '.join(missed) or 'none'}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
