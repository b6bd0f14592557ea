"""The way into a project whose data are in a ClickHouse store: straight, or by a relay.

Straight, what is acknowledged waits in a log until the store has it. Where traces are sampled it
goes through a local store first, which sends on what is kept.
"""

from pathlib import Path
from typing import Final, NamedTuple

from longpole.errors import UsageError
from longpole.vocab import Rollup
from longpole_collector.batch import Budget
from longpole_collector.content import Policy, make_policy
from longpole_collector.far import FarWriter
from longpole_collector.health import Health
from longpole_collector.ingest import OUTBOX_FOLDER, UNDECIDED_FOLDER, WAL_FOLDER, Ingest
from longpole_collector.projects import watch
from longpole_collector.relay import Relay, RelayWriter
from longpole_collector.settings import Settings
from longpole_collector.stores.clickhouse.far import FarStore
from longpole_collector.stores.connection import Limits

_STRAIGHT: Final = (
    "{} has requests that the store has not got yet, and sampling takes another way: start once "
    "without [collector.sampling] until longpole_queue_spans is 0"
)
_BY_RELAY: Final = (
    "{} has traces that were sampled and may not be sent yet, and without sampling nobody sends "
    "them: start with [collector.sampling] is_on = true once more (rest = 1 drops nothing), stop "
    "the senders, wait until longpole_undecided_traces and longpole_unsent_traces are 0, stop, and "
    "remove that folder"
)


class Way(NamedTuple):
    """The way in: what takes spans, what sends them on if they wait for a decision, the policy."""

    ingest: Ingest
    relay: Relay | None
    policy: Policy


def open_way(
    settings: Settings,
    name: str,
    folder: Path,
    store: FarStore,
    rollup: Rollup | None,
    budget: Budget,
) -> Way:
    """Open it; nothing is sent yet.

    Args:
        settings: the limits, and whether traces are sampled.
        name: the project's name.
        folder: its data folder, held by this process.
        store: where its data are; it need not answer.
        rollup: what traces are rolled up with before they are decided about.
        budget: bytes that may wait in memory in all projects together.

    Raises:
        UsageError: the settings cannot be used here, or what earlier ones left is in the way.
    """
    own = settings.project(name)
    if own.content == "keep":
        raise UsageError(
            f"content = \"keep\" of project '{name}' is for the local store, which takes prompts "
            'out again after keep_days: "drop" or "redact" with a ClickHouse store'
        )
    policy, health = make_policy(folder, own), Health()
    health.gauge("store_failing", lambda: int(store.problem is not None))
    if not settings.sampling.is_on:
        if any((folder / UNDECIDED_FOLDER).glob("*.duckdb")):
            raise UsageError(_BY_RELAY.format(folder / UNDECIDED_FOLDER))
        outbox = folder / OUTBOX_FOLDER
        outbox.mkdir(mode=0o700, exist_ok=True)
        watch(health, budget, outbox)
        ingest = Ingest(
            folder,
            FarWriter(store, folder, outbox, health, policy),
            max_body_bytes=settings.max_body_bytes,
            budget=budget,
            max_log_bytes=settings.max_log_bytes,
        )
        return Way(ingest, None, policy)
    if any((folder / OUTBOX_FOLDER).glob("*.wal")):
        raise UsageError(_STRAIGHT.format(folder / OUTBOX_FOLDER))
    limits = Limits(memory=settings.query_memory)
    relay = Relay(store, folder, health, policy, limits)
    try:
        watch(health, budget, relay.folder / WAL_FOLDER)
        ingest = Ingest(
            relay.folder,
            RelayWriter(relay, rollup, health, policy, settings.sampling),
            max_body_bytes=settings.max_body_bytes,
            budget=budget,
        )
    except BaseException:
        relay.store.close()
        raise
    return Way(ingest, relay, policy)
