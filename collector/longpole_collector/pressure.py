"""How much of a core taking and storing spans uses: whether roll-ups have to wait.

Queries and the roll-ups themselves do not count; by the time of the whole process a dashboard
alone would hold roll-ups up.
"""

from time import monotonic, thread_time
from typing import Final

from longpole_collector.batch import Budget

_BUSY_CORES: Final = 0.4
_REFUSED_S: Final = 5.0
_WINDOW_S: Final = 1.0


class Pressure:
    """What the doors' thread and the store's thread use; each tells its own time.

    Args:
        budget: says whether something was refused lately.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._door_cpu_s = self._apart_cpu_s = 0.0
        self._looked_s = self._looked_cpu_s = self._num_cores = 0.0

    def note_door(self) -> None:
        """Something came in; called by the doors' thread."""
        self._door_cpu_s = thread_time()

    def leave_out(self, cpu_s: float) -> None:
        """Processor time of the store's thread that went into something else."""
        self._apart_cpu_s += cpu_s

    def is_high(self) -> bool:
        """Whether both take 0.4 of a core, or something was refused; the store's thread asks."""
        cpu_s = self._door_cpu_s + thread_time() - self._apart_cpu_s
        if (passed_s := monotonic() - self._looked_s) >= _WINDOW_S:
            self._num_cores = (cpu_s - self._looked_cpu_s) / passed_s
            self._looked_s, self._looked_cpu_s = self._looked_s + passed_s, cpu_s
        return self._num_cores > _BUSY_CORES or self._budget.since_refused_s() < _REFUSED_S
