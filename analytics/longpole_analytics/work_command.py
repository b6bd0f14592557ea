"""``longpole work``."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import click

from longpole.errors import UsageError
from longpole_analytics.loading import window, window_options


@click.command()
@click.option("--url", required=True, help="The store, clickhouse://HOST:PORT/DATABASE.")
@click.option("--shards", default="1/1", metavar="I/N", help="This worker's share of the traces.")
@click.option("--once", "is_once", is_flag=True, help="Settle what is due now, then end.")
@window_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document at the end.")
def work(
    url: str, shards: str, is_once: bool, since: str | None, at: str | None, as_json: bool
) -> None:
    """Settle calls, workflows and critical paths of a ClickHouse store until SIGTERM or Ctrl-C.

    Several workers share the traces by --shards: 1/2 and 2/2 are two of two. One that was killed
    is started again; nothing has to be put right. --once with --since and --at back-fills the
    workflows that began in between, whenever their spans came.
    """
    from longpole_collector.work import Work, work

    since_ns, until_ns = window(since, at, time.time_ns())
    if not is_once and (since_ns, until_ns) != (None, None):
        raise UsageError("--since and --at say what to back-fill: give --once too")
    if not is_once:
        click.echo(f"longpole work: shard {shards}", err=True)
    asked = Work(url, shards, since_ns, until_ns, is_once)
    with _stopping() as stopping:
        num = work(asked, stopping, told=lambda text: click.echo(f"waiting: {text}", err=True))
    if as_json:
        document = {"schema": "longpole.work/1", "shards": shards, "num_traces": num}
        click.echo(json.dumps(document))
    else:
        click.echo(f"traces settled {num}")


@contextmanager
def _stopping() -> Iterator[Event]:
    """An event that SIGTERM and Ctrl-C set, so that the batch in hand is ended."""
    event = Event()
    before = {
        each: signal.signal(each, lambda *_: event.set())
        for each in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield event
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
