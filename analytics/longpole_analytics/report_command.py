"""``longpole report``: the week, or any other time, as HTML, Markdown and JSON."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from longpole.errors import NotEnoughData, UsageError
from longpole_analytics.loading import Source, flat_table, opened, source_options, window_options
from longpole_analytics.loading import window as between

if TYPE_CHECKING:
    from longpole_analytics.report.reading import Setup
    from longpole_analytics.report.weeks import Window

FORMS: Final = ("html", "md", "json")
_FORM: Final = {"markdown": "md", **{form: form for form in FORMS}}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--week", metavar="WEEK", help="An ISO week, as 2026-W37 (default: the last whole).")
@window_options
@click.option("--tz", metavar="ZONE", help="Whose weeks and days (default: the schedule's, UTC).")
@click.option("--out", type=click.Path(path_type=Path), help="Write into this folder, or file.")
@click.option("--format", "forms", type=click.Choice([*_FORM]), multiple=True,
              help="Which forms (default: all into a folder, Markdown on stdout).")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@click.option("--where", metavar="SQL", help="Only requests that meet this condition.")
@click.option("--slow", default="p95", show_default=True, help="A quantile, or milliseconds.")
@click.option("--metric", default="e2e_ms", show_default=True, help="How slow a request is.")
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="Promises, budgets, prices (default: the nearest longpole.toml).")  # fmt: skip
@source_options
def report(
    *,
    file: Path | None,
    week: str | None,
    since: str | None,
    at: str | None,
    tz: str | None,
    out: Path | None,
    forms: tuple[str, ...],
    as_json: bool,
    where: str | None,
    slow: str,
    metric: str,
    config: Path | None,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
) -> None:
    """The slow requests of a week: promises, causes, changes, cost, coverage.

    FILE is a file of traces, or one flat table of requests (Parquet, CSV); without one the data
    folder is read. The week is the last whole one before --at or now; --since takes any time
    instead, as 24h. With --out DIR it writes report.html, report.md and report.json.
    """
    from longpole.config import find_file
    from longpole_analytics.report.settings import load_setup, zone_of
    from longpole_analytics.report.weeks import zone
    from longpole_analytics.requests import ALIASES
    from longpole_analytics.top import slow_of

    path = config or find_file()
    wanted = _forms(forms, as_json, out)
    window = _window(week, since, at, zone(tz, "--tz") if tz else zone_of(path))
    source = Source(db, url, project, (*([file] if file else []), *files))
    setup = replace(
        load_setup(path, project or "default", _options(source)),
        config=None if config is None else str(config),
        where=where,
        slow=slow_of(slow),
        metric=ALIASES.get(metric, metric),
    )
    document = made(source, setup, window)
    if out is None:
        click.echo(written(document, wanted[0]), nl=False)
    else:
        for name in _saved(document, wanted, out):
            click.echo(f"wrote {name}", err=True)
    if not document["window"]["num_traces"]:
        raise NotEnoughData(f"no request began from {_between(document)}")


def made(source: Source, setup: Setup, window: Window) -> dict[str, Any]:
    """The document of a report, ``longpole.report/1``.

    Args:
        source: where to read.
        setup: what is asked for.
        window: the time.

    Raises:
        BadInput: a file, or the condition, cannot be read.
        Unreachable: no data there.
    """
    from longpole_analytics.report.build import build
    from longpole_analytics.report.reading import read

    flat = flat_table(source.files)
    if flat is not None:
        return build(read(flat, setup, window))
    reader = opened(source)
    try:
        return build(read(reader, setup, window))
    finally:
        reader.close()


def written(document: dict[str, Any], form: str) -> str:
    """A report in one of :data:`FORMS`."""
    if form == "json":
        return json.dumps(document, allow_nan=False) + "\n"
    if form == "html":
        from longpole_analytics.report.html import page

        return page(document)
    from longpole_analytics.report.markdown import text

    return text(document)


def _forms(forms: tuple[str, ...], as_json: bool, out: Path | None) -> list[str]:
    found = list(dict.fromkeys(_FORM[form] for form in forms))
    if as_json:
        if out is not None or found not in ([], ["json"]):
            raise UsageError("--json prints one document: leave out --out and --format")
        return ["json"]
    if out is None:
        if len(found) > 1:
            raise UsageError("several forms need a folder: give --out DIR")
        return found or ["md"]
    if out.suffix.lstrip(".") in _FORM and not out.is_dir():
        form = _FORM[out.suffix.lstrip(".")]
        if found not in ([], [form]):
            raise UsageError(
                f"--out {out} is a file of {form}: leave out --format, or name a folder"
            )
        return [form]
    return found or list(FORMS)


def _window(week: str | None, since: str | None, at: str | None, tz: str) -> Window:
    from longpole_analytics.report import weeks

    now_ns = time.time_ns()
    if week is not None:
        if since is not None or at is not None:
            raise UsageError("--week is a time of its own: leave out --since and --at")
        return weeks.week(week, tz)
    since_ns, until_ns = between(since, at, now_ns)
    end_ns = now_ns if until_ns is None else until_ns
    if since_ns is None:
        return weeks.last_week(end_ns, tz)
    if since_ns >= end_ns:
        raise UsageError(f"--since {since}: ends before it begins")
    return weeks.Window(since_ns, end_ns, None, tz)


def _options(source: Source) -> str:
    """The options that name the source to another command."""
    words: list[str] = []
    for name, value in (("--db", source.db), ("--url", source.url), ("--project", source.project)):
        words += [name, str(value)] if value is not None else []
    for path in source.files:
        words += ["--file", str(path)]
    return " ".join(shlex.quote(word) for word in words)


def _saved(document: dict[str, Any], forms: list[str], out: Path) -> list[Path]:
    """Write the forms; each file is whole or not there at all."""
    is_file = out.suffix.lstrip(".") in _FORM and not out.is_dir()
    names = [out] if is_file else [out / f"report.{form}" for form in ("json", "html", "md")
                                   if form in forms]  # fmt: skip
    try:
        (out.parent if is_file else out).mkdir(parents=True, exist_ok=True)
        for name in names:
            form = _FORM[name.suffix.lstrip(".")]
            draft = name.with_name(f".{name.name}.part")
            draft.write_text(written(document, form), encoding="utf-8")
            draft.replace(name)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    return names


def _between(document: dict[str, Any]) -> str:
    return f"{document['window']['since']} to {document['window']['until']}"
