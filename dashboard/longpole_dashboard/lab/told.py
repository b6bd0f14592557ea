"""What the lab's commands print."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from longpole_analytics.wording import milliseconds, printable, quantile_name
from longpole_dashboard.lab.labels import label
from longpole_dashboard.lab.play import BASELINE, SHAPE
from longpole_dashboard.lab.recipe import Recipe
from longpole_dashboard.lab.run import Run
from longpole_dashboard.lab.score import Named
from longpole_dashboard.lab.values import written


def print_recipes(console: Console, recipes: Sequence[Recipe]) -> None:
    """A line a recipe, and what happens in it below."""
    wide = max(len(each.name) for each in recipes)
    for each in recipes:
        console.print(
            f"{each.name:{wide}}  {each.truth.shape} / {each.truth.sub_cause}", soft_wrap=True
        )
        console.print(f"{'':{wide}}  {each.text}", soft_wrap=True)


def print_run(console: Console, found: Run, db: Path | None) -> None:
    """Truth, verdict, evidence, and how to ask again."""
    truth, verdict, played = found.recipe.truth, found.verdict, found.played
    console.print(
        f"{found.recipe.name}: {sum(played.num_sent.values())} requests in {played.took_s:.0f} s",
        soft_wrap=True,
    )
    said = verdict.name or "too few samples"
    console.print(f"truth    {truth.shape} / {truth.sub_cause}", soft_wrap=True)
    console.print(f"verdict  {said} / {label(verdict.sub_cause)}", soft_wrap=True)
    if verdict.sub_cause:
        console.print(f"         {printable(verdict.sub_cause)}", markup=False, soft_wrap=True)
    rows = [
        (
            each.metric,
            "" if each.quantile is None else quantile_name(each.quantile),
            _value(each.metric, each.current),
            _value(each.metric, each.baseline),
            "" if each.ratio is None else f"{each.ratio:.2f}",
            str(each.n),
        )
        for each in verdict.evidence
    ]
    _table(console, ("evidence", "", "now", "before", "ratio", "n"), rows)
    if verdict.next_check:
        console.print(f"next check  {verdict.next_check}", markup=False, soft_wrap=True)
    for other in verdict.also:
        cause = f": {other.sub_cause}" if other.sub_cause else ""
        console.print(f"also        {other.name}{cause}", markup=False, soft_wrap=True)
    if db is not None:
        console.print(
            f'again       longpole shapes --db {db} --baseline "{played.condition(BASELINE)}"'
            f' --current "{played.condition(SHAPE)}"',
            markup=False,
            soft_wrap=True,
        )


def print_score(console: Console, document: Mapping[str, Any], runs: Sequence[Named]) -> None:
    """The confusion matrix by rows, the bars, and each run that was not named right."""
    for title, key in (("shape", "confusion"), ("sub-cause", "sub_cause_confusion")):
        rows = [
            (truth, str(sum(called.values())), _called(called))
            for truth, called in document[key].items()
        ]
        _table(console, (title, "runs", "called"), rows)
        console.print()
    console.print(f"macro F1 of shape      {_share(document['shape_f1'])}   need 0.95")
    console.print(f"macro F1 of sub-cause  {_share(document['sub_cause_f1'])}   need 0.85")
    console.print(
        f"clean runs misnamed    {_share(document['clean_misnamed'])}   need 0.02 at most, "
        f"of {document['num_clean']}"
    )
    for run in runs:
        if (run.truth, run.sub_truth) != (run.verdict, run.sub_verdict):
            console.print(
                f"  {run.recipe}, seed {run.seed}: called {run.verdict} / {run.sub_verdict}",
                markup=False,
                soft_wrap=True,
            )


def print_checked(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """Each knob's quantiles: before, as predicted, as measured."""
    rows = [
        (
            one["knob"],
            quantile_name(each["quantile"]),
            milliseconds(each["before_ms"]),
            milliseconds(each["predicted_ms"]),
            milliseconds(each["measured_ms"]),
            f"{each['error']:+.0%}" + ("" if each["is_near"] else " too far"),
        )
        for one in found
        for each in one["quantiles"]
    ]
    _table(console, ("knob", "", "before", "predicted", "measured", "error"), rows)
    for q in dict.fromkeys(each["quantile"] for one in found for each in one["quantiles"]):
        errors = [
            abs(each["error"])
            for one in found
            for each in one["quantiles"]
            if each["quantile"] == q
        ]
        console.print(
            f"error at {quantile_name(q)}: median {median(errors):.0%}, "
            f"largest {max(errors):.0%} of {len(errors)} knobs",
            soft_wrap=True,
        )


def _called(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {num}" for name, num in counts.items())


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _value(metric: str, value: float | None) -> str:
    return "" if value is None else written(metric, value)


def _table(console: Console, names: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number > 1 and name != "called" else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
