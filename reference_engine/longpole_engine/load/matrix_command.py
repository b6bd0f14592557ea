"""``longpole engine matrix``: lengths, concurrency, cache, start and settings, all with all."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import click

from longpole.errors import UsageError
from longpole_engine.load.commands import NumberRange
from longpole_engine.settings import DEFAULTS

if TYPE_CHECKING:
    from longpole_engine.load.matrix import Axes


class _List(click.ParamType[tuple[str, ...]]):
    """Values with commas between."""

    name = "list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The values, each once."""
        if isinstance(value, tuple):
            return value
        found = tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))
        if not found:
            self.fail("needs a value", param, ctx)
        return found


@click.command("matrix")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path),
              default=".longpole/matrix/matrix.json", show_default=True,
              help="The document, a page beside it. What it has is not run again.")  # fmt: skip
@click.option("--model", default="smollm2", show_default=True)
@click.option("--input-tokens", type=_List(), default="64,256", show_default=True)
@click.option("--output-tokens", type=_List(), default="16,64", show_default=True)
@click.option("--concurrency", type=_List(), default="1,4", show_default=True,
              help="Clients that wait for their answers.")  # fmt: skip
@click.option("--cache", type=_List(), default="off,miss,hit", show_default=True)
@click.option("--start", type=_List(), default="warm", show_default=True,
              help="warm, cold: right after the engine's start.")  # fmt: skip
@click.option("--language", type=_List(), default="en", show_default=True, help="Of prompts.")
@click.option("--setting", "settings", multiple=True, metavar="KEY=VALUE[,VALUE]",
              help="Of [engine], as policy=fcfs,shortest or weights=int4,int8.")  # fmt: skip
@click.option("--requests", type=click.IntRange(1), default=24, show_default=True, help="A cell.")
@click.option("--spread", type=NumberRange(0, 1), default=0.0, show_default=True,
              help="How far lengths of prompts differ from the cell's.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "is_json", is_flag=True, help="The document on standard output, too.")
def matrix(out: Path, is_json: bool, **given: Any) -> None:
    """Run every combination on engines of its settings; run it again to go on where it ended.

    Each cell is closed loop. A cell is best if none of its lengths has less latency and more
    throughput.
    """
    from longpole_engine.load import matrix as plan
    from longpole_engine.load.matrix_page import page
    from longpole_engine.load.matrix_run import Matrix, run_until_done

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    axes = _axes(given)
    basis = plan.Basis(given["model"], given["requests"], given["spread"], given["seed"])
    machine = {"num_cores": os.cpu_count(), "system": platform.platform()}

    def say(text: str) -> None:
        click.echo(text, err=True)

    _check_writable(out)
    made = Matrix(basis, axes, out, machine, say)
    say(f"{made.num_wanted} cells, {made.num_wanted - len(made.left)} of them done before")
    try:
        run_until_done(made, lambda: say("stopping: cells that are done are kept"))
    finally:
        if made.document["cells"]:
            out.with_suffix(".html").write_text(page(made.document), "utf-8")
    click.echo(
        json.dumps(made.document, indent=1) if is_json else "\n".join(_told(made.document, out))
    )


def _check_writable(out: Path) -> None:
    """Refuse a place that cannot take the document, before anything is run."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from error


def _axes(given: Mapping[str, Any]) -> Axes:
    from longpole_engine.load.matrix import Axes
    from longpole_engine.load.prompts import LANGUAGES

    numbers: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens", "concurrency"):
        try:
            numbers[name] = tuple(int(word) for word in given[name])
        except ValueError as error:
            raise UsageError(f"--{name.replace('_', '-')}: {error}") from error
    if unknown := set(given["language"]) - set(LANGUAGES):
        raise UsageError(f"--language is one of {', '.join(LANGUAGES)}, not '{min(unknown)}'")
    settings = {"policy": ("fcfs",)}
    for words in given["settings"]:
        key, _, values = words.partition("=")
        found = tuple(value.strip() for value in values.split(",") if value.strip())
        if key not in DEFAULTS or key in ("host", "port", "model", "prefix_cache") or not found:
            raise UsageError(f"--setting '{words}' is not KEY=VALUE[,VALUE] with a KEY of [engine]")
        settings[key] = found
    return Axes(
        **numbers,
        cache=given["cache"],
        start=given["start"],
        language=given["language"],
        settings=settings,
    )


def _told(document: Mapping[str, Any], out: Path) -> Iterator[str]:
    """Panels as tables of lines."""
    from longpole_engine.load.matrix import label, panels

    for panel in panels(document):
        work = f"{panel.input_tokens} in, {panel.output_tokens} out, {panel.language}"
        yield f"{work:<48}{'TTFT ms':>8}{'TPOT ms':>9}{'tokens/s':>10}"
        for point in sorted(panel.points, key=lambda point: point.latency_ms):
            tpot_ms = point.row["result"]["tpot_ms"]["mean"]
            yield (
                f"  {'*' if point.is_best else ' '} {label(point.row):<44}{point.latency_ms:>8.1f}"
                f"{'-' if tpot_ms is None else f'{tpot_ms:.1f}':>9}{point.tokens_per_s:>10.1f}"
            )
    yield "* none of these lengths has less time to the first token and more tokens a second"
    yield f"{out} and {out.with_suffix('.html')}"
