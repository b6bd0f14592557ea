"""The audit's lines on model calls: streams, models, caches, prompts."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from longpole.vocab import keys
from longpole_analytics.advisor import cacheable_order, premium_tier, tiny_labels, unstable_prefix
from longpole_analytics.advisor._population import Population
from longpole_analytics.advisor._thresholds import AdvisorRules
from longpole_analytics.advisor.base import Candidate, Fact, of, text
from longpole_analytics.advisor.buffered_streams import marked
from longpole_analytics.advisor.not_streamed import shown
from longpole_analytics.audit import FAIL, PASS, UNSEEN, AuditRules, Line, ids
from longpole_analytics.weighted import part as part_of

_LAYERS: Final = ("prompt", "exact", "semantic")
_LONG: Final = 1024


def streaming(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether answers that a user waits for are streamed, up to the page."""
    check, question = "streaming", "Are answers streamed from end to end?"
    every = shown(pop).drop_nulls("is_streamed")
    told = every.filter(pl.col("output_tokens") >= advisor.min_streamable_tokens)
    if told.height < rules.min_calls and every["is_streamed"].all():
        told = every  # of short ones, only that they are streamed says something
    whole = told.filter(~pl.col("is_streamed"))
    part = part_of(whole, told)
    pages = pop.spans.filter(pl.col("render_updates").is_not_null() & pl.col("is_sound"))
    streamed = told.filter("is_streamed")["trace"]
    stuck = pages.filter(
        (pl.col("render_updates") <= 1) & pl.col("trace").is_in(streamed.implode())
    )
    facts: tuple[Fact, ...] = (of("not_streamed_share", part),)
    if pages.height:
        once = part_of(stuck, pages)
        facts = (*facts, Fact("pages_painted_once_share", once.value, pages.height))
    if told.height < rules.min_calls:
        return Line(check, question, UNSEEN, "too few answers of some length say whether they "
                    "were streamed", "wrap the client with longpole.wrap", facts)  # fmt: skip
    if (part.value or 0.0) > rules.max_bad_share:
        return Line(check, question, FAIL, f"{part.k} of {part.n} answers that a user waits for "
                    "come in one piece", "call with stream=True and pass chunks on", facts,
                    ids(pop.traces, whole["trace"]))  # fmt: skip
    is_stuck = (part_of(stuck, pages).value or 0.0) > rules.max_bad_share
    if pages.height >= rules.min_calls and is_stuck:
        return Line(check, question, FAIL, f"{stuck.height} of {pages.height} pages paint a "
                    "streamed answer once, at its end", "paint while the answer comes", facts,
                    ids(pop.traces, stuck["trace"]))  # fmt: skip
    return Line(check, question, PASS, f"{part.n - part.k} of {part.n} answers are streamed",
                "nothing to do", facts, ids(pop.traces, streamed))  # fmt: skip


def buffering(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether something on the way holds streams back."""
    check, question = "no_buffering", "Is nothing between model and client buffering streams?"
    told = marked(pop.calls, advisor)
    held = told.filter("is_buffered")
    part = part_of(held, told)
    facts = (of("buffered_share", part),)
    if told.height < rules.min_calls:
        return Line(check, question, UNSEEN, "too few streams tell when their chunks came",
                    "stream, and wrap the client with longpole.wrap", facts)  # fmt: skip
    if (part.value or 0.0) > rules.max_bad_share:
        return Line(check, question, FAIL, f"{part.k} of {part.n} streams come in one burst at "
                    "their end", "turn off proxy buffering and compression of "
                    "text/event-stream", facts, ids(pop.traces, held["trace"]))  # fmt: skip
    sound = told.filter(~pl.col("is_buffered"))
    return Line(check, question, PASS, f"{part.n - part.k} of {part.n} streams flow",
                "nothing to do", facts, ids(pop.traces, sound["trace"]))  # fmt: skip


def models(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether each step has the smallest model that does, as far as traces show."""
    check, question = "smallest_model", "Does each step use the smallest adequate model?"
    known = pop.calls.drop_nulls(["output_tokens", "model"])
    found = [*tiny_labels.ADVICE.find(pop, advisor), *premium_tier.ADVICE.find(pop, advisor)]
    if found:
        return _failed(pop, check, question, found)
    priced = known.drop_nulls("output_usd_per_mtok")
    facts = (Fact("priced_calls", priced.height, pop.calls.height),)
    if priced.height < rules.min_calls:
        return Line(check, question, UNSEEN, "too few calls have a model whose price is known, so "
                    "large and small cannot be told apart",
                    "add your models' prices to longpole.toml", facts)  # fmt: skip
    return Line(check, question, PASS, "no step has a large model name a label, and no premium "
                "tier is paid for in vain", "compare a smaller model on each step with "
                "recorded inputs now and then", facts,
                ids(pop.traces, priced["trace"]))  # fmt: skip


def cache_layers(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether the prompt cache and the caches of whole answers, exact and semantic, are hit."""
    check, question = "cache_layers", "Do all three cache layers work (prompt, exact, semantic)?"
    told = pop.calls.drop_nulls("cached_input_tokens")
    is_hit_prompt = pl.col("cached_input_tokens") > 0
    # providers cache from so many tokens on; an engine's own cache may take shorter ones
    long = told.filter((pl.col("input_tokens") >= _LONG) | is_hit_prompt)
    hits = {"prompt": part_of(long.filter(is_hit_prompt), long)}
    looks = pop.spans.filter(pl.col("app_cache_hit").is_not_null() & pl.col("is_sound"))
    kind = pl.col("app_cache_kind").fill_null("exact")
    is_hit = pl.col("app_cache_hit").str.to_lowercase() == "true"
    for layer in _LAYERS[1:]:
        own = looks.filter(kind == layer)
        hits[layer] = part_of(own.filter(is_hit), own)
    facts = tuple(of(f"{layer}_hit_rate", hits[layer]) for layer in _LAYERS)
    is_ours = (pop.spans["scope"] == keys.SCOPE_SDK).any()
    seen = [layer for layer in _LAYERS if hits[layer].n >= rules.min_calls]
    idle = [layer for layer in seen if not hits[layer].k]
    missing = [layer for layer in _LAYERS if layer not in seen]
    if not is_ours and missing:
        return Line(check, question, UNSEEN, f"nothing is told of these caches: {_listed(missing)}",
                    "wrap lookups in longpole.cache_lookup", facts)  # fmt: skip
    if not missing and not idle:
        hit = looks.filter(is_hit)["trace"]
        return Line(check, question, PASS, "all three layers are asked, and hit", "nothing to do",
                    facts, ids(pop.traces, hit))  # fmt: skip
    if "prompt" in missing and len(missing) == len(_LAYERS) and pop.calls.height < rules.min_calls:
        return Line(check, question, UNSEEN, "too few calls", "send more traces", facts)
    words = []
    if missing:
        words.append(f"no sign of a cache of this kind: {_listed(missing)}")
    if idle:
        words.append(f"never hit: {_listed(idle)}")
    return Line(check, question, FAIL, "; ".join(words), "`longpole cache` says what each "
                "layer is worth; wrap lookups in longpole.cache_lookup", facts,
                ids(pop.traces, pop.calls["trace"]))  # fmt: skip


def prompt_order(pop: Population, rules: AuditRules, advisor: AdvisorRules) -> Line:
    """Whether prompts have what is stable first, and keep it stable."""
    check, question = "prompt_order", "Do prompts put what is stable first, and keep it stable?"
    found = [*unstable_prefix.ADVICE.find(pop, advisor), *cacheable_order.ADVICE.find(pop, advisor)]
    if found:
        return _failed(pop, check, question, found)
    told = pop.calls.filter(
        pl.col("chain").is_not_null()
        | pl.col("prefix_hash").is_not_null()
        | (pl.col("cached_input_tokens") > 0)
    )
    part = part_of(told, pop.calls)
    facts = (of("calls_that_tell_share", part),)
    if told.height < rules.min_calls:
        return Line(check, question, UNSEEN, "neither hashes of prompts nor cached tokens are told",
                    "describe prompts with longpole.prompt(segments=...), or set "
                    "prefix_hashes", facts)  # fmt: skip
    return Line(check, question, PASS, "no prompt changes before its stable part ends",
                "nothing to do", facts, ids(pop.traces, told["trace"]))  # fmt: skip


def _failed(pop: Population, check: str, question: str, found: Sequence[Candidate]) -> Line:
    """The line of what the advisor has found, most traces first."""
    worst = max(found, key=lambda one: len(one.touched))
    where = text(worst.where.get("route"))
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Line(check, question, FAIL, f"route {where}: {worst.title}{more}", worst.change,
                tuple(worst.evidence), ids(pop.traces, pl.Series(worst.touched)))  # fmt: skip


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
