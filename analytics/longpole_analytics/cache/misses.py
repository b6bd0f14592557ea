"""Why the prefix of a prompt missed the cache, for each miss the first cause that applies.

A call misses if it read less than it could have: the longest prefix it shares with an earlier
call of its model, or, in a route that was called before, its whole stable part. What it shares
is known from keyed hashes alone.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import polars as pl

from longpole_analytics.cache.prompts import MESSAGES, Prompt, prompts
from longpole_analytics.cache.rules import CacheRules
from longpole_analytics.weighted import sums_of

CAUSES: Final = (
    "ineligible",
    "first_seen",
    "template_edit",
    "tool_order",
    "tool_set",
    "volatile_prefix",
    "concurrent_write",
    "ttl_expired",
    "routing_scatter",
    "evicted_or_unknown",
)
"""In the order in which they are asked."""
EDITS: Final[Mapping[str, str]] = {
    "ineligible": "nothing to edit: the prompt is below the provider's minimum; put shared "
    "reference text in front only if it is needed anyway",
    "first_seen": "nothing to edit: no call before had this prefix; send one call ahead of a burst",
    "template_edit": "expected once for each prompt version; release versions less often, "
    "and append what is new instead of changing what stands first",
    "tool_order": "sort the tool definitions, by name for example, before each call",
    "tool_set": "send one fixed list of tools on the route; choose among them with tool_choice",
    "volatile_prefix": "move what changes from call to call out of segment '{segment}' (block "
    "{block}) to the end of the prompt, after everything stable",
    "concurrent_write": "send one call first and the others after its first token",
    "ttl_expired": "the prefix is asked for too seldom for its life: pay for the longer life, or "
    "send a call before it expires",
    "routing_scatter": "send calls with one prefix to one place: set the cache key or route by "
    "the prefix's hash",
    "evicted_or_unknown": "ask the provider or look at the engine's eviction count: same prefix, "
    "same place, within its life",
}
_LOOK_BACK: Final = 256
"""Earlier calls with one prefix that are looked at; those before them are taken as expired."""
NUM_EXAMPLES: Final = 10
_SCHEMA: Final = {
    "row": pl.Int64,
    "cause": pl.String,
    "lost_tokens": pl.Int64,
    "lost_usd": pl.Float64,
    "segment": pl.String,
    "block": pl.Int64,
    "shared_with": pl.Int64,
    "edit": pl.String,
}


class _Call(NamedTuple):
    start_ns: int
    ready_ns: int
    place: tuple[object, ...]
    input_tokens: int
    cached_tokens: int
    write_long: bool
    provider: str
    model: str
    family: tuple[object, ...]
    version: str | None
    state: str | None
    worth_usd: float | None


@dataclass
class _Seen:
    """What went before in one route of one model."""

    calls: list[int] = field(default_factory=list)
    versions: set[str | None] = field(default_factory=set)
    tool_sets: dict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))


class _Reference(NamedTuple):
    """The earlier call that shares most, and the blocks it shares."""

    row: int | None
    num_blocks: int
    users: Sequence[int]


def miss_causes(costs: pl.DataFrame, rules: CacheRules) -> pl.DataFrame:
    """The misses with their causes, in order of time.

    One row a miss: ``row``, its place in the table given; ``cause``, one of :data:`CAUSES`;
    ``lost_tokens``, billed as plain input though they might have been read; ``lost_usd``, what
    that cost, null without prices; ``segment`` and ``block`` (from 1), the first that differs
    from ``shared_with``, the row of the earlier call that shares most; ``edit``, what would help.

    Args:
        costs: rows of :func:`longpole_analytics.cost.priced`, with the columns of
            :mod:`longpole_analytics.cache.prompts`, and if they are known ``replica`` and
            ``cache_key``. Calls whose time or tokens are unknown or contradictory are left out.
        rules: the thresholds.
    """
    known = _prompts_of(costs, rules)
    return _Detective(known, rules).misses()


class _Detective:
    def __init__(self, calls: Mapping[int, tuple[_Call, Prompt]], rules: CacheRules) -> None:
        self._calls = {row: call for row, (call, _) in calls.items()}
        self._prompts = {row: prompt for row, (_, prompt) in calls.items()}
        self._rules = rules
        self._users: dict[tuple[object, ...], list[int]] = {}
        self._seen: dict[tuple[object, ...], _Seen] = defaultdict(_Seen)
        self._volatile = _volatile(calls, rules)

    def misses(self) -> pl.DataFrame:
        found = []
        for row, call in sorted(self._calls.items(), key=lambda each: (each[1].start_ns, each[0])):
            miss = self._miss(row, call)
            if miss is not None:
                found.append(miss)
            self._remember(row, call)
        return pl.DataFrame(found, _SCHEMA, orient="row")

    def _miss(self, row: int, call: _Call) -> tuple[Any, ...] | None:
        prompt = self._prompts[row]
        seen = self._seen.get(call.family)
        least = self._rules.min_of(call.provider)
        is_short = call.state == "ineligible" or call.input_tokens < least
        is_untold = not (prompt.hashes or prompt.segments)
        if is_untold and seen and not is_short and -call.cached_tokens <= self._rules.slack_tokens:
            return None  # nothing says that it could have read more
        reference = self._reference(call, prompt)
        shared = prompt.tokens(reference.num_blocks, call.input_tokens)
        if reference.users and prompt.num_blocks is None:  # only the stable prefix is known
            shared = _stable_tokens(prompt, call, self._rules) or call.input_tokens
        stable = _stable_tokens(prompt, call, self._rules) if seen else 0
        is_new = seen is None and shared < least
        could = call.input_tokens if is_short or is_new else max(shared, stable)
        lost = could - call.cached_tokens
        if lost <= (0 if is_short or is_new else self._rules.slack_tokens):
            return None
        if (is_short or is_new) and call.cached_tokens:
            return None
        is_without = f"{call.provider}/{call.model}" in self._rules.models_without_cache
        if is_short or is_without:
            cause = "ineligible"
        elif is_new:
            cause = "first_seen"
        else:
            is_covered = shared >= stable - self._rules.slack_tokens
            differs = None if is_covered else self._differs(prompt, reference, seen)
            cause = self._cause(row, call, reference, differs, seen)
        segment, block = self._place(prompt, reference)
        worth = None if call.worth_usd is None else lost * call.worth_usd
        edit = EDITS[cause].format(segment=segment or "?", block=block or "?")
        return row, cause, lost, worth, segment, block, reference.row, edit

    def _cause(
        self,
        row: int,
        call: _Call,
        reference: _Reference,
        segment: str | None,
        seen: _Seen | None,
    ) -> str:
        if segment is None:  # the prefix is the same, however far the hashes tell it
            return self._expired(row, call, reference)
        if seen is not None and call.version not in seen.versions:
            return "template_edit"
        if segment == "tools" and seen is not None:
            tools = next(each for each in self._prompts[row].segments if each.name == "tools")
            known = seen.tool_sets.get(tools.set_hash or "", set())
            return "tool_order" if known - {tools.hash} else "tool_set"
        if (call.family, call.version, segment) in self._volatile:
            return "volatile_prefix"
        return "first_seen"

    def _expired(self, row: int, call: _Call, reference: _Reference) -> str:
        """Of a prefix that was there before: why it was not, or not to be had."""
        rules, alive = self._rules, []
        for other in reference.users:
            before = self._calls[other]
            life_s = rules.long_ttl_s if before.write_long else rules.ttl_of(call.provider)
            if call.start_ns - before.start_ns <= life_s * 1e9:
                alive.append(before)
        if not alive:
            return "ttl_expired" if reference.users else "evicted_or_unknown"
        ready = [before for before in alive if before.ready_ns <= call.start_ns]
        if not ready:
            return "concurrent_write"
        if all(before.place != call.place for before in ready):
            return "routing_scatter"
        return "evicted_or_unknown"

    def _reference(self, call: _Call, prompt: Prompt) -> _Reference:
        for at in range(len(prompt.hashes) - 1, -1, -1):
            users = self._users.get((call.provider, call.model, prompt.key_id, prompt.hashes[at]))
            if users:
                return _Reference(users[-1], prompt.blocks[at], users)
        seen = self._seen.get(call.family)
        return _Reference(seen.calls[-1] if seen and seen.calls else None, 0, ())

    def _differs(self, prompt: Prompt, reference: _Reference, seen: _Seen | None) -> str | None:
        """The first stable segment that is not as in the earlier call."""
        other = reference.row if reference.row is not None else (seen.calls[-1] if seen else None)
        if other is None:
            return None
        before = {each.name: each.hash for each in self._prompts[other].segments}
        for each in prompt.segments:
            if each.name in self._rules.stable_segments and before.get(each.name) != each.hash:
                return each.name
        return None

    def _place(self, prompt: Prompt, reference: _Reference) -> tuple[str | None, int | None]:
        """First segment and block, from 1, that differ from the earlier call; null if none."""
        if reference.row is None:
            return None, None
        before = {each.name: each.hash for each in self._prompts[reference.row].segments}
        segment = next((s.name for s in prompt.segments if before.get(s.name) != s.hash), None)
        block = reference.num_blocks + 1 if prompt.num_blocks else None
        is_all = prompt.num_blocks is not None and reference.num_blocks >= prompt.num_blocks
        return segment, None if is_all else block

    def _remember(self, row: int, call: _Call) -> None:
        prompt, seen = self._prompts[row], self._seen[call.family]
        for each in prompt.hashes:
            users = self._users.setdefault((call.provider, call.model, prompt.key_id, each), [])
            users.append(row)
            if len(users) > 2 * _LOOK_BACK:
                del users[:_LOOK_BACK]
        seen.calls[:] = [row]
        seen.versions.add(call.version)
        for segment in prompt.segments:
            if segment.name == "tools" and segment.set_hash is not None:
                seen.tool_sets[segment.set_hash].add(segment.hash)


def _stable_tokens(prompt: Prompt, call: _Call, rules: CacheRules) -> int:
    """Tokens of the segments before the first that may change; 0 if lengths are not known."""
    lengths = [segment.length for segment in prompt.segments]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or not sum(known):
        return 0
    stable = 0
    for segment, length in zip(prompt.segments, known, strict=True):
        if segment.name not in rules.stable_segments:
            break
        stable += length
    return call.input_tokens * stable // sum(known)


def _volatile(
    calls: Mapping[int, tuple[_Call, Prompt]], rules: CacheRules
) -> set[tuple[object, ...]]:
    """(route, version, segment) whose values differ in most calls and hardly ever come again."""
    values: dict[tuple[object, ...], list[str | None]] = defaultdict(list)
    told = [each for each in calls.values() if each[1].segments]
    for call, prompt in sorted(told, key=lambda each: each[0].start_ns):
        for segment in prompt.segments:
            if segment.name in rules.stable_segments and segment.name != MESSAGES:
                values[(call.family, call.version, segment.name)].append(segment.hash)
    found = set()
    for key, hashes in values.items():
        common = Counter(hashes).most_common(1)[0][0]
        others = [each for each in hashes if each != common]
        is_often = len(others) >= rules.volatile_share * len(hashes)
        if others and is_often and len(set(others)) >= rules.volatile_distinct * len(others):
            found.add(key)
    return found


def _prompts_of(costs: pl.DataFrame, rules: CacheRules) -> dict[int, tuple[_Call, Prompt]]:
    wanted = {
        "start_ns": pl.Int64,
        "ttft_ms": pl.Float64,
        "end_ns": pl.Int64,
        "replica": pl.String,
        "cache_key": pl.String,
        "input_tokens": pl.Int64,
        "cached_input_tokens": pl.Int64,
        "cache_write_tokens": pl.Int64,
        "cache_write_1h_tokens": pl.Int64,
        "provider": pl.String,
        "model_key": pl.String,
        "response_model": pl.String,
        "request_model": pl.String,
        "route": pl.String,
        "prompt_version": pl.String,
        "cache_state": pl.String,
        "input_usd_per_mtok": pl.Float64,
        "cached_input_usd_per_mtok": pl.Float64,
    }
    missing = [pl.lit(None).alias(name) for name in wanted if name not in costs.columns]
    table = costs.with_columns(missing).select(pl.col(n).cast(kind) for n, kind in wanted.items())
    known = prompts(costs, rules.stable_segments)
    found = {}
    for row, each in enumerate(table.iter_rows(named=True)):
        call = _call(each, known[row].key_id)
        if call is not None:
            found[row] = (call, known[row])
    return found


def _call(row: Mapping[str, Any], key_id: str | None) -> _Call | None:
    start, size, cached = row["start_ns"], row["input_tokens"], row["cached_input_tokens"]
    written = row["cache_write_tokens"] or 0
    if start is None or size is None or cached is None or not 0 <= cached <= size - written:
        return None
    provider, _, model = (row["model_key"] or "").partition("/")
    provider = provider or row["provider"] or ""
    model = model or row["response_model"] or row["request_model"] or ""
    plain, read = row["input_usd_per_mtok"], row["cached_input_usd_per_mtok"]
    ttft = row["ttft_ms"]
    ready = start + int(ttft * 1e6) if ttft is not None else (row["end_ns"] or start)
    return _Call(
        start_ns=start,
        ready_ns=ready,
        place=(row["replica"], row["cache_key"]),
        input_tokens=size,
        cached_tokens=cached,
        write_long=bool(row["cache_write_1h_tokens"]),
        provider=provider,
        model=model,
        family=(provider, model, row["route"], key_id),
        version=row["prompt_version"],
        state=row["cache_state"],
        worth_usd=None if plain is None or read is None else (plain - read) / 1e6,
    )


def by_cause(misses: pl.DataFrame) -> pl.DataFrame:
    """The misses by cause, those that lost the most money, then tokens, first.

    One row a cause: ``num_misses``, ``lost_tokens``, ``lost_usd``, the ``segment`` and ``block``
    that differ most often, and the ``edit`` that would help. Where ``misses`` have a ``weight``
    the sums are those of all calls that came; what each missed is told by the kept ones.
    """
    sums, usd = sums_of(misses), pl.col("lost_usd")
    return (
        misses.group_by("cause", maintain_order=True)
        .agg(
            num_misses=sums.num(),
            lost_tokens=sums.times(pl.col("lost_tokens")).sum(),
            lost_usd=pl.when(usd.count() > 0).then(sums.times(usd).sum()),
            segment=pl.col("segment").drop_nulls().mode().sort().first(),
            block=pl.col("block").drop_nulls().mode().sort().first(),
            edit=pl.col("edit").mode().sort().first(),
        )
        .sort("lost_usd", "lost_tokens", "cause", descending=[True, True, False], nulls_last=True)
    )


def examples(misses: pl.DataFrame, costs: pl.DataFrame) -> dict[str, list[str]]:
    """By cause the traces whose prompts lost the most tokens, each once, at most ten.

    Args:
        misses: of :func:`miss_causes`.
        costs: the table it was given, with ``trace_id``.
    """
    named = misses.with_columns(trace_id=costs["trace_id"].cast(pl.String).gather(misses["row"]))
    most = named.drop_nulls("trace_id").sort("lost_tokens", "row", descending=[True, False])
    each = most.unique(["cause", "trace_id"], keep="first", maintain_order=True)
    found = each.group_by("cause", maintain_order=True).agg(pl.col("trace_id").head(NUM_EXAMPLES))
    return dict(found.iter_rows())
