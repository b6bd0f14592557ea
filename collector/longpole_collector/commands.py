"""The collector's commands: ``collect``, ``import``, ``export``, ``query``, ``doctor``.

What they are for goes to stdout, what they have to say to stderr. Heavy imports happen inside.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from longpole_collector.settings import chosen_folder, load_settings, named_store

if TYPE_CHECKING:
    from longpole_collector.stores.base import Reader

_PIPE_WIDTH: Final = 4096
_F = TypeVar("_F", bound=Callable[..., Any])
_file = click.Path(path_type=Path, exists=True, dir_okay=False)


def _where(command: _F) -> _F:
    """The options that say whose data: ``--db``, ``--project``, ``--url``, ``--file``."""
    command = click.option("--file", "files", type=_file, multiple=True, help="A trace file.")(
        command
    )
    return _place(command)


def _place(command: _F) -> _F:
    """The options that name a collector or a folder: ``--db``, ``--project``, ``--url``."""
    for option in (
        click.option("--url", help="HTTP address of a running collector."),
        click.option("--project", help="Project in the data folder [default]."),
        click.option("--db", type=click.Path(path_type=Path), help="Data folder [./.longpole]."),
    ):
        command = option(command)
    return command


@click.command()
@click.option("--db", type=click.Path(path_type=Path), help="Data folder [./.longpole].")
@click.option("--http", help="HOST:PORT of OTLP/HTTP and queries [127.0.0.1:4318].")
@click.option("--grpc", help="HOST:PORT of OTLP/gRPC [127.0.0.1:4317].")
@click.option("--store", help="Store spans at clickhouse://HOST:PORT/DATABASE instead.")
@click.option("--schema", type=click.Choice(["own", "otel"]), help="Whose tables are at --store.")
@click.option(
    "--settle/--no-settle", default=None, help="Settle what is there, or leave it to workers."
)
@click.option(
    "--insecure-no-auth", is_flag=True, default=None, help="Listen beyond loopback without keys."
)
def collect(
    db: Path | None,
    http: str | None,
    grpc: str | None,
    store: str | None,
    schema: str | None,
    settle: bool | None,
    insecure_no_auth: bool | None,
) -> None:
    """Run the collector in the foreground until SIGTERM or Ctrl-C.

    With --store the data folder keeps only what the store has not taken yet, and the keys.
    """
    chosen = load_settings(
        db=db,
        http=http,
        grpc=grpc,
        store=named_store(store, schema),
        settle=settle,
        insecure_no_auth=insecure_no_auth,
    )
    from longpole_collector.app import Collector, run

    def started(collector: Collector) -> None:
        doors = f"http {collector.http}, grpc {collector.grpc}"
        kept = f", store {collector.far}" if collector.far else ""
        click.echo(f"longpole collect: {doors}, data {chosen.db}{kept}", err=True)
        for address in (collector.http, collector.grpc):
            if not address.is_loopback and chosen.is_open(address):
                click.echo(
                    f"WARNING: {address} is open to other machines, nobody has to show a key",
                    err=True,
                )

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("urllib3", "clickhouse_connect"):  # what they warn of is told in our words
        logging.getLogger(name).setLevel(logging.ERROR)
    run(chosen, started)


@click.command("import")
@click.argument("files", type=_file, nargs=-1, required=True)
@_place
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def import_files(
    files: tuple[Path, ...], db: Path | None, project: str | None, url: str | None, as_json: bool
) -> None:
    """Load trace files: OTLP (protobuf, JSON, JSON Lines), Jaeger's JSON, our Parquet export.

    GenAI events of log records in OTLP files are joined to their spans.
    """
    from longpole_collector.importing import import_all

    folder = chosen_folder(db, project, url)
    done = import_all(files, db=None if url else folder, url=url)
    if as_json:
        click.echo(json.dumps({"schema": "longpole.import/1", **done._asdict()}))
    else:
        click.echo(
            f"files {len(files)}  spans {done.num_spans}  new {done.num_new}  "
            f"rejected {done.num_rejected}"
            + (f"  events {done.num_events}" if done.num_events else "")
        )
    if done.num_rejected:
        click.echo(f"rejected: {done.reason}", err=True)


@click.command("export")
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "parquet", "jaeger"]), default="jsonl"
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
@_where
def export_files(
    form: str,
    out: Path,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
) -> None:
    """Write every span to a file that `longpole import` reads back.

    jaeger is the JSON that Jaeger's UI loads; it counts whole microseconds.
    """
    from longpole_collector.files import write_jaeger, write_jsonl, write_parquet

    write = {"jsonl": write_jsonl, "parquet": write_parquet, "jaeger": write_jaeger}[form]
    with _reader(db, project, url, files) as reader:
        num_spans = write(reader, out)
    click.echo(f"spans {num_spans}")


@click.command()
@click.argument("sql")
@_where
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def query(
    sql: str,
    db: Path | None,
    project: str | None,
    url: str | None,
    files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Run one read-only statement over the views spans, calls, traces, trace_stages."""
    from longpole_collector.documents import query_document

    with _reader(db, project, url, files) as reader:
        document = query_document(reader.sql(sql))
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        _draw(document)


@click.command()
@click.option("--db", type=click.Path(path_type=Path), help="Data folder [./.longpole].")
@click.option("--url", help="HTTP address of a running collector.")
@click.option("--fix", "is_fixing", is_flag=True, help="Mend what can be mended safely.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def doctor(db: Path | None, url: str | None, is_fixing: bool, as_json: bool) -> None:
    """Check this machine and the collector; one line a check, exit code 1 if any fails.

    A running collector is sent two spans of the service longpole-doctor. --fix makes stored files
    their owner's alone, removes what a killed collector left, and sets broken files aside.
    """
    from longpole_collector.doctor import FAIL, examine

    found = []
    for check in examine(db, url, is_fixing=is_fixing):
        found.append(check)
        if not as_json:
            fix = f"  -> {check.fix}" if check.fix else ""
            click.echo(_printable(f"{check.status:<4}  {check.name}: {check.detail}{fix}"))
    if as_json:
        checks = [asdict(check) for check in found]
        click.echo(json.dumps({"schema": "longpole.doctor/1", "checks": checks}))
    if any(check.status == FAIL for check in found):
        sys.exit(1)


@contextmanager
def _reader(
    db: Path | None, project: str | None, url: str | None, files: Sequence[Path]
) -> Iterator["Reader"]:
    """The reader that the options name; the configured data folder when they name none."""
    from longpole_collector.stores import open_reader

    reader = open_reader(db=chosen_folder(db, project, url or files), url=url, files=files)
    try:
        yield reader
    finally:
        reader.close()


def _draw(document: dict[str, Any]) -> None:
    """A table for people; text from spans is shown with its control characters taken out."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(*(Column(Text(_printable(name))) for name in document["columns"]))
    for row in document["rows"]:
        table.add_row(*(Text("" if value is None else _printable(value)) for value in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(table)


def _printable(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
