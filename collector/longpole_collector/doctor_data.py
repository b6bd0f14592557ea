"""The doctor's look at stored data: the folder, each file in it, and what the spans lack.

Files are opened for reading only and one by one, so that a damaged one is named and the others
are still looked at. What the last spans lack is no fault; each line says what sending it would
unlock.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from longpole.errors import LongpoleError
from longpole_collector.doctor_check import FAIL, OK, SERVICE, WARN, Check
from longpole_collector.doctor_mend import FIX, folders, set_aside

if TYPE_CHECKING:
    from longpole_collector.stores.base import Reader

MIN_FREE_BYTES: Final = 1 << 30
_FILES: Final = "spans*.duckdb"
_REJECTED: Final = "rejected.jsonl"
NUM_SPANS: Final = 1000
"""The last so many spans are asked what they lack."""


# --- the folder ---------------------------------------------------------------------------------
def folder_checks(folder: Path) -> Iterator[Check]:
    """Whether the data folder can be written, and what room is left on its disk."""
    yield _folder(folder)
    free = shutil.disk_usage(_existing(folder)).free
    detail = f"{free / (1 << 30):.1f} GiB free"
    if free < MIN_FREE_BYTES:
        fix = "free some space, or move the data folder with --db"
        yield Check("disk", WARN, detail, fix)
    else:
        yield Check("disk", OK, detail)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    here = folder.resolve()
    return next(path for path in (here, *here.parents) if path.exists())


def _folder(folder: Path) -> Check:
    there = _existing(folder)
    fix = f"chown or chmod {there}, or pass another --db"
    if not there.is_dir():
        return Check("data folder", FAIL, f"{there} is no folder", "pass another --db")
    if there != folder.resolve():
        if os.access(there, os.W_OK | os.X_OK):
            return Check("data folder", OK, f"{folder} is not there yet and can be made")
        return Check("data folder", FAIL, f"{folder} cannot be made in {there}", fix)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"longpole")
    except OSError as error:
        return Check("data folder", FAIL, f"{folder}: {error.strerror or error}", fix)
    return Check("data folder", OK, f"{folder} is writable")


# --- its files ----------------------------------------------------------------------------------
def has_spans(folder: Path) -> bool:
    """Whether there is a file that may hold spans."""
    return any(folder.glob(_FILES))


def file_checks(folder: Path, *, is_fixing: bool = False) -> Iterator[Check]:
    """The database files of a folder that no collector holds, those of its projects too.

    With ``is_fixing`` those that are broken are set aside.
    """
    files = [path for each in folders(folder) for path in sorted(each.glob(_FILES))]
    checks = [_file(path, str(path.relative_to(folder)), is_fixing=is_fixing) for path in files]
    good = [check for check in checks if check.status == OK]
    yield from (check for check in checks if check.status != OK)
    yield from (check for each in folders(folder) for check in _rejected(each / _REJECTED))
    if not files:
        yield Check("database", OK, f"{folder} holds no spans yet")
    elif good:
        versions = ", ".join(sorted({check.detail for check in good}))
        yield Check("database", OK, f"{len(good)} of {len(files)} files open, {versions}")


def _rejected(path: Path) -> Iterator[Check]:
    """Spans that the store could not hold, kept aside."""
    if path.is_file() and (num := path.read_bytes().count(b"\n")):
        fix = "each line says why; remove the file when that is mended"
        yield Check("rejected spans", WARN, f"{num} could not be stored: {path}", fix)


def _file(path: Path, name: str, *, is_fixing: bool) -> Check:
    """One file, opened and the ids and times of its spans read."""
    import duckdb

    from longpole_collector.stores.guard import first_line
    from longpole_collector.stores.migrations import SCHEMA_VERSION

    check = f"database {name}"
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            sql = "SELECT value FROM meta WHERE key = 'schema_version'"
            rows = connection.execute(sql).fetchall()
            sql = "SELECT bit_xor(trace_hi), bit_xor(span_id), max(start_ns) FROM span_rows"
            connection.execute(sql).fetchall()
    except duckdb.Error as error:
        return _broken(check, path, first_line(error), is_fixing=is_fixing)
    version = int(rows[0][0]) if rows else 0
    detail = f"schema {version}, this longpole writes {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        return Check(check, FAIL, f"{path}: {detail}", "pip install --upgrade longpole")
    return Check(check, OK, detail)


def _broken(check: str, path: Path, reason: str, *, is_fixing: bool) -> Check:
    """A file that cannot be read, and what to do about it."""
    detail = f"{path} cannot be read: {reason}"
    if "lock" in reason:
        return Check(check, FAIL, detail, "end the program that has it open")
    if "version number" in reason:
        return Check(check, FAIL, detail, "pip install --upgrade longpole")
    if is_fixing and (target := set_aside(path)) is not None:
        return Check(
            check,
            WARN,
            f"mended: {detail}; set aside as {target.name}, the rest is served",
            f"restore {path.name} from a backup",
        )
    return Check(
        check,
        FAIL,
        detail,
        f"restore it from a backup, or set it aside with `{FIX}`; without {path.name} the rest "
        "is served",
    )


# --- what the spans lack ------------------------------------------------------------------------
class _Lack(NamedTuple):
    """A fact; which spans it is asked of, in words and SQL; when it lacks; its fix; its use."""

    fact: str
    spans: str
    asked: str
    lacks: str
    fix: str
    unlocks: str


_CALL: Final = "is_model_call AND NOT is_engine"
_ANSWER: Final = f"{_CALL} AND status <> 'error' AND operation IS DISTINCT FROM 'embeddings'"
_STREAM: Final = f"{_ANSWER} AND is_streamed"
_LACKS: Final = (
    _Lack(
        "service", "spans", "true", "service IS NULL",
        "set OTEL_SERVICE_NAME", "slices by service",
    ),
    _Lack(
        "parent", "model calls", _CALL, "parent_id IS NULL",
        "wrap the work around calls in longpole.workflow(...)",
        "the critical path and the steps around a call",
    ),
    _Lack(
        "route", "root spans", "parent_id IS NULL", "route IS NULL",
        "longpole.workflow(name, route=...), or the attribute longpole.route",
        "objectives, causes and baselines by route",
    ),
    _Lack(
        "outcome", "root spans", "parent_id IS NULL", "outcome IS NULL",
        "run.accept() or run.reject(reason), or the attribute longpole.outcome",
        "time to an accepted outcome, and failures told from answers",
    ),
    _Lack(
        "model", "model calls", _CALL, "coalesce(response_model, request_model) IS NULL",
        "send gen_ai.request.model", "slices by model, and prices",
    ),
    _Lack(
        "streamed or not", "answered calls", _ANSWER, "is_streamed IS NULL",
        "send gen_ai.request.stream, or longpole.wrap(client)", "TTFT of all streamed calls",
    ),
    _Lack(
        "time to first token", "streamed calls", _STREAM, "ttft_ns IS NULL",
        "longpole.wrap(client), or a library that sends gen_ai.response.time_to_first_chunk",
        "TTFT, and the wait told from the generation",
    ),
    _Lack(
        "last token's time", "streamed calls", _STREAM, "last_content_ns IS NULL",
        "longpole.wrap(client)", "decode time, TPOT and stalls as the user saw them",
    ),
    _Lack(
        "token usage", "answered calls", _ANSWER, "input_tokens IS NULL OR output_tokens IS NULL",
        "ask for it: stream_options={'include_usage': True}", "TPOT, cost and fair comparison",
    ),
    _Lack(
        "cached tokens", "answered calls", _ANSWER, "cached_input_tokens IS NULL",
        "send gen_ai.usage.cache_read.input_tokens", "what the prompt cache saves",
    ),
    _Lack(
        "finish reason", "answered calls", _ANSWER, "finish_reason IS NULL",
        "send gen_ai.response.finish_reasons", "cut-off answers told from whole ones",
    ),
    _Lack(
        "prompt version", "model calls", _CALL, "prompt_version IS NULL",
        "longpole.prompt(version=...), or the attribute gen_ai.prompt.version",
        "before and after of a prompt's edit",
    ),
    _Lack(
        "engine's account", "streamed calls", _STREAM, "queue_ns IS NULL AND num_engine = 0",
        "trace the engine too, and send it traceparent",
        "TTFT split in queue, prefill and first token",
    ),
)  # fmt: skip


def lack_checks(reader: "Reader") -> Iterator[Check]:
    """What the last spans lack; a warning where most of those asked do."""
    counts = ", ".join(
        f"count_if({lack.asked}), count_if({lack.asked} AND ({lack.lacks}))" for lack in _LACKS
    )
    sql = (
        f"SELECT count(*), {counts} FROM (SELECT *, count_if(is_engine) OVER () AS num_engine "  # noqa: S608
        f"FROM (SELECT * EXCLUDE (attributes, events, links) FROM spans "
        f"WHERE service IS DISTINCT FROM '{SERVICE}' ORDER BY received_ns DESC LIMIT {NUM_SPANS}))"
    )
    try:
        num_spans, *found = (column[0].as_py() for column in reader.sql(sql).columns)
    except LongpoleError as error:
        yield Check("attributes", WARN, f"the last spans cannot be read: {error}", None)
        return
    num_lines = 0
    for lack, num_asked, num_lack in zip(_LACKS, found[0::2], found[1::2], strict=True):
        if num_lack:
            num_lines += 1
            detail = f"{num_lack} of {num_asked} {lack.spans} lack it; unlocks {lack.unlocks}"
            status = WARN if 2 * num_lack > num_asked else OK
            yield Check(f"attribute {lack.fact}", status, detail, lack.fix)
    if not num_spans:
        yield Check("attributes", OK, "no spans yet to look at")
    elif not num_lines:
        yield Check("attributes", OK, f"the last {num_spans} spans lack nothing")
