"""Recorded traffic from a collector: when workflows began, their calls' lengths and prefixes.

Never a text: prefixes are keyed hashes, and only which of them are equal is used.
"""

import json
import urllib.error
import urllib.request
from itertools import count, groupby
from typing import Any, Final

from longpole.errors import BadInput, Unreachable
from longpole.vocab import keys
from longpole_engine.load.arrivals import Session, Turn

MAX_CALLS: Final = 100_000
_TIMEOUT_S: Final = 60.0
_HASH_DIGITS: Final = 16
_NUM_FIRST_BLOCKS: Final = 32
_BLOCKS_BETWEEN: Final = 8
_MAX_OWN: Final = 1 << 20
"""More blocks than a prompt has."""
_QUERY: Final = f"""
SELECT c.trace_id, c.start_ns, c.end_ns, c.input_tokens, c.output_tokens,
       s.attributes['{keys.PROMPT_CHAIN}'] AS chain,
       s.attributes['{keys.PROMPT_NUM_BLOCKS}'] AS num_blocks,
       s.attributes['{keys.PROMPT_BLOCK}'] AS block
FROM (SELECT * FROM calls WHERE start_ns >= $since AND ($route IS NULL OR route = $route)
      LIMIT {MAX_CALLS}) AS c
JOIN spans AS s ON s.trace_id = c.trace_id AND s.span_id = c.span_id
"""  # noqa: S608 - our own constants only


def sessions(
    url: str, key: str | None, since_ns: int, route: str | None, speed: float = 1.0
) -> list[Session]:
    """The workflows since then, each a session whose calls follow one another.

    The waits between a workflow's calls (its tools, its own code) are replayed; calls that ran at
    once follow without a wait. Prompts share what they shared, to the block; a call that does not
    tell its prefixes shares nothing.

    Args:
        url: a collector's HTTP address.
        key: of scope ``read``, where it wants one.
        since_ns: Unix epoch nanoseconds.
        route: one route; ``None`` for all.
        speed: of the replay's clock.

    Raises:
        Unreachable: no collector answers there.
        BadInput: it refused the question, or has no call since then, or too many.
    """
    rows = ask(url, key, _QUERY, {"since": since_ns, "route": route})
    rows.sort(key=lambda row: (row["trace_id"], row["start_ns"]))
    if not rows:
        raise BadInput(f"{url} has no call since then: nothing to replay")
    if len(rows) >= MAX_CALLS:
        raise BadInput(
            f"{url} has more than {MAX_CALLS:,} calls since then: choose a shorter --since, or a "
            "--route"
        )
    first_ns = min(row["start_ns"] for row in rows)
    sizes, numbers = _block_tokens(rows), count(1)
    found = []
    for _, calls in groupby(rows, key=lambda row: row["trace_id"]):
        turns: list[Turn] = []
        begun_ns = end_ns = 0
        for call in calls:
            wait_ns = max(0, call["start_ns"] - end_ns) if turns else 0
            begun_ns = begun_ns if turns else call["start_ns"]
            end_ns = max(end_ns, call["end_ns"] or call["start_ns"])
            blocks = _blocks(call["chain"] or "", int(call["num_blocks"] or 0), next(numbers))
            size = sizes.get(blocks[0]) if blocks else None
            lengths = call["input_tokens"], call["output_tokens"]
            turns.append(Turn(wait_ns / 1e9 / speed, *lengths, blocks, size))
        found.append(Session((begun_ns - first_ns) / 1e9 / speed, tuple(turns)))
    return sorted(found, key=lambda session: session.due_s)


def _blocks(chain: str, num: int, own: int) -> tuple[int, ...]:
    """Names of a prompt's blocks: the hashes of its prefixes; those left out are filled in.

    Args:
        chain: hashes of the first 32 blocks, then of every eighth.
        num: of all blocks; those after the last hash are the prompt's own.
        own: a number of the prompt.
    """
    hashes = _hashes(chain)
    later = (
        found * _BLOCKS_BETWEEN + part
        for found in hashes[_NUM_FIRST_BLOCKS:]
        for part in range(_BLOCKS_BETWEEN)
    )
    told = (*hashes[:_NUM_FIRST_BLOCKS], *later)
    return (*told, *(-own * _MAX_OWN - part for part in range(1, num - len(told) + 1)))


def _hashes(chain: str) -> list[int]:
    return [
        int(chain[at : at + _HASH_DIGITS], 16)
        for at in range(0, len(chain) - _HASH_DIGITS + 1, _HASH_DIGITS)
    ]


def _block_tokens(rows: list[dict[str, Any]]) -> dict[int, int]:
    """How many tokens a block has, by the first block: of prompts that begin alike it is the same.

    A block of bytes has as many as that makes on average; the last of a prompt is half full.
    """
    sums: dict[int, tuple[float, float]] = {}
    for row in rows:
        if row["chain"] and row["input_tokens"]:
            first = _hashes(row["chain"])[0]
            tokens, blocks = sums.get(first, (0.0, 0.0))
            size, _, unit = (row["block"] or "").partition(" ")
            if unit == "tokens":
                sums[first] = tokens + int(size), blocks + 1
                continue
            num = int(row["num_blocks"] or len(_hashes(row["chain"])))
            sums[first] = tokens + row["input_tokens"], blocks + num - 0.5
    return {first: max(1, round(tokens / blocks)) for first, (tokens, blocks) in sums.items()}


def ask(url: str, key: str | None, sql: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a collector's answer, each by its columns' names.

    Raises:
        Unreachable: no collector answers there.
        BadInput: it refused the question.
    """
    headers = {"content-type": "application/json", "accept": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    body = json.dumps({"sql": sql, "params": params}).encode()
    request = urllib.request.Request(url.rstrip("/") + "/api/v1/query", body, headers)  # noqa: S310
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        text = error.read(2_000).decode("utf-8", "replace")
        raise BadInput(f"{url} refused the question ({error.code}): {text}") from error
    except (OSError, ValueError) as error:
        raise Unreachable(f"no collector answers at {url} ({error})") from error
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
