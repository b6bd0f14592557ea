"""The sentence on top of Cache: true of its tables, with their numbers."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from longpole_dashboard.model import text
from longpole_dashboard.model.cache import CacheView, usd
from longpole_dashboard.model.scope import Scope
from longpole_dashboard.model.verdict_lines.base import FEW
from longpole_dashboard.model.verdict_lines.cache import MIN_GAP, of_cache

from .sentences import HOSTILE, assert_of, few, names, ratios, sizes, times

SCOPE = Scope(0, 1)


def calls(
    version: str | None, n: int, size: int, share: float | None, **more: Any
) -> dict[str, Any]:
    row = {"route": "shop.question", "prompt_version": version, "model_key": None, "num_known": n}
    return {**row, "input_tokens": size, "hit_rate_tokens": share, **more}


def miss(cause: str, lost: int, usd_lost: float | None = None, n: int = 30) -> dict[str, Any]:
    told = {"cause": cause, "num_misses": n, "lost_tokens": lost, "lost_usd": usd_lost}
    return {**told, "edit": f"edit of segment {HOSTILE}"}


def cache_view(
    slices: list[dict[str, Any]],
    *misses: dict[str, Any],
    share: float | None = 0.5,
    n: int = 73,
    num_hashed: int = 9,
) -> CacheView:
    whole = {"num_calls": n, "num_known": n, "hit_rate_tokens": share}
    found = {"hits": {"all": whole, "slices": slices}, "misses": misses}
    return CacheView(SCOPE, {**found, "achievable": [{"num_calls": num_hashed}]}, "")


VERSIONS = [calls("v2", 30, 9_080, 0.0511), calls("v1", 31, 8_206, 0.854)]


def test_a_version_that_lost_the_cache_is_set_against_the_one_that_has_it() -> None:
    said = of_cache(cache_view(VERSIONS, miss("ineligible", 556)))
    assert said.line == (
        "50.0 % of the input came from a cache (n 73); shop.question v2 gets 5.1 % where v1 gets "
        "85.4 % (n 30 and 31)."
    )
    assert said.more[0].startswith("Next: compare the first lines of v2 with those of v1")


def test_the_cause_that_lost_most_is_said_with_what_would_help() -> None:
    said = of_cache(cache_view(VERSIONS, miss("volatile_prefix", 20_000)))
    assert said.line == (
        "50.0 % of the input came from a cache (n 73); most is lost by misses of cause volatile "
        "prefix: 20,000 tokens (n 30)."
    )
    assert said.more[0].startswith("Next, volatile prefix: edit of segment a b")
    priced = of_cache(cache_view([], miss("ttl_expired", 900, 1.25, n=4)))
    assert priced.line.endswith(
        "dearest are misses of cause ttl expired: $1.25, 900 tokens (n 4, too few to hold for "
        "others)."
    )


@pytest.mark.parametrize(
    "slices",
    [
        [],
        [calls("v2", FEW - 1, 9_000, 0.05), calls("v1", 50, 9_000, 0.9)],
        [calls("v2", 50, 9_000, 0.85), calls("v1", 50, 9_000, 0.9)],
        [calls("v2", 50, 9_000, 0.05), calls("v1", 50, 9_000, 0.9, route="other")],
        [calls("v2", 50, 9_000, 0.05), calls("v1", 50, 9_000, 0.9, model_key="openai/b")],
        [calls(None, 50, 9_000, 0.05), calls("v1", 50, 9_000, 0.9)],
        [calls("v2", 50, 0, None), calls("v1", 50, 9_000, 0.9)],
    ],
)
def test_few_calls_near_shares_and_unlike_calls_are_not_set_against_each_other(
    slices: list[dict[str, Any]],
) -> None:
    said = of_cache(cache_view(slices)).line
    assert said == (
        "50.0 % of the input came from a cache (n 73); no prompt missed what it could have read."
    )


def test_no_input_and_few_calls_are_said() -> None:
    assert of_cache(cache_view([], share=None)).line.startswith("No verdict: ")
    unseen = of_cache(cache_view([], num_hashed=0)).line
    assert unseen.endswith("why the rest missed is not known: no call tells hashes of its prompt.")
    assert "(n 2, too few to hold for others)" in of_cache(cache_view([], n=2)).line


rows = some.builds(
    calls, some.sampled_from(["alpha", "beta", None]), sizes, sizes, some.none() | ratios,
    route=names,
)  # fmt: skip


@few
@given(
    some.lists(rows, max_size=5),
    some.lists(some.builds(miss, names, sizes, some.none() | times, sizes), max_size=2),
    sizes,
    ratios,
)
def test_numbers_of_the_cache_are_those_of_its_tables(
    slices: list[dict[str, Any]], misses: list[dict[str, Any]], n: int, share: float
) -> None:
    said = of_cache(cache_view(slices, *misses, share=share, n=n)).line
    shown = [f"{text.percent(share)} {text.count(n)}"]
    shown += [f"{text.count(m['lost_tokens'])} {text.count(m['num_misses'])}" for m in misses]
    shown += [usd(m["lost_usd"]) for m in misses]
    for row in slices:
        shown.append(f"{text.count(row['num_known'])} {text.percent(row['hit_rate_tokens'])}")
    assert_of(said, shown)
    if " where " in said:
        low, high = (float(each) for each in re.findall(r"gets ([\d.]+) %", said))
        assert high - low >= 100 * MIN_GAP - 0.11


def test_hostile_names_of_the_cache_are_text_in_one_line() -> None:
    bad = [
        {**row, "route": HOSTILE, "prompt_version": HOSTILE + str(row["num_known"])}
        for row in VERSIONS
    ]
    for said in (of_cache(cache_view(bad)), of_cache(cache_view([], miss("first_seen", 9)))):
        assert all(line.isprintable() and len(line) < 400 for line in (said.line, *said.more))
