"""How well the diagnosis names what the lab made: confusion, F1, and what it says of nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from longpole_analytics.shapes.base import NORMAL

SCHEMA: Final = "longpole.lab_score/1"
MIN_SHAPE_F1: Final = 0.95
MIN_SUB_CAUSE_F1: Final = 0.85
MAX_CLEAN_MISNAMED: Final = 0.02


class Named(NamedTuple):
    """What a run was, and what it was called."""

    recipe: str
    seed: int
    truth: str
    verdict: str
    sub_truth: str
    sub_verdict: str


class Label(NamedTuple):
    """One label: runs that were it, that were called it, both; and its F1."""

    name: str
    num: int
    num_called: int
    num_right: int
    f1: float


class Score(NamedTuple):
    """Macro F1s are means over the labels that some run was; ``None`` of no runs."""

    num_runs: int
    shapes: tuple[Label, ...]
    sub_causes: tuple[Label, ...]
    shape_f1: float | None
    sub_cause_f1: float | None
    num_clean: int
    clean_misnamed: float | None

    @property
    def is_enough(self) -> bool:
        """Whether all bars are met; a share that no run carries is no obstacle."""
        return (
            (self.shape_f1 or 0.0) >= MIN_SHAPE_F1
            and (self.sub_cause_f1 or 0.0) >= MIN_SUB_CAUSE_F1
            and (self.clean_misnamed or 0.0) <= MAX_CLEAN_MISNAMED
        )


def named(document: Mapping[str, Any]) -> Named:
    """What counts of a run's document (``longpole.lab_run/1``)."""
    return Named(
        document["recipe"],
        document["seed"],
        document["truth"]["shape"],
        document["verdict"]["shape"] or "too few samples",
        document["truth"]["sub_cause"],
        document["verdict"]["label"],
    )


def score(runs: Sequence[Named]) -> Score:
    """The score of runs."""
    shapes = labels((run.truth, run.verdict) for run in runs)
    subs = labels((run.sub_truth, run.sub_verdict) for run in runs)
    clean = [run for run in runs if run.truth == NORMAL]
    wrong = sum(run.verdict != NORMAL for run in clean)
    return Score(
        len(runs),
        shapes,
        subs,
        macro_f1(shapes),
        macro_f1(subs),
        len(clean),
        wrong / len(clean) if clean else None,
    )


def labels(pairs: Iterable[tuple[str, str]]) -> tuple[Label, ...]:
    """The labels of (truth, verdict) pairs that are the truth of some, in order of name."""
    counted = Counter(pairs)
    found = []
    for name in sorted({truth for truth, _ in counted}):
        num = sum(n for (truth, _), n in counted.items() if truth == name)
        called = sum(n for (_, verdict), n in counted.items() if verdict == name)
        right = counted[name, name]
        found.append(Label(name, num, called, right, 2 * right / (num + called)))
    return tuple(found)


def macro_f1(found: Sequence[Label]) -> float | None:
    """The mean of the labels' F1; ``None`` without any."""
    return sum(each.f1 for each in found) / len(found) if found else None


def confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """How often each truth was called what, both in order of name."""
    counted = Counter(pairs)
    return {
        row: {
            name: counted[row, name]
            for name in sorted({verdict for truth, verdict in counted if truth == row})
        }
        for row in sorted({truth for truth, _ in counted})
    }


def document(runs: Sequence[Named], took_s: float) -> dict[str, Any]:
    """The score as ``longpole.lab_score/1`` has it."""
    found = score(runs)
    return {
        "schema": SCHEMA,
        "num_runs": found.num_runs,
        "took_s": took_s,
        "shape_f1": found.shape_f1,
        "sub_cause_f1": found.sub_cause_f1,
        "num_clean": found.num_clean,
        "clean_misnamed": found.clean_misnamed,
        "is_enough": found.is_enough,
        "shapes": [each._asdict() for each in found.shapes],
        "sub_causes": [each._asdict() for each in found.sub_causes],
        "confusion": confusion((run.truth, run.verdict) for run in runs),
        "sub_cause_confusion": confusion((run.sub_truth, run.sub_verdict) for run in runs),
        "runs": [run._asdict() for run in runs],
    }
