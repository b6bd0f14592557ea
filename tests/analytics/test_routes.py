"""Rules of routing, read whole or refused; the options of a route; tiers; other rules."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longpole.errors import BadInput, NotEnoughData, UsageError
from longpole_analytics.requests import from_flat
from longpole_analytics.routing.envelope import envelope
from longpole_analytics.routing.policy import changed_in_place, warnings
from longpole_analytics.routing.reading import read_policy
from longpole_analytics.routing.tiers import downgrades, worths
from longpole_analytics.routing.whatif import projected
from longpole_analytics.scorecard.rules import CardRules

RULES = """\
version = "2026-11-20.1"

[routes."rag.search"]
version = "7"
owner = "search"
inputs = ["input_tokens", "language", "is_paying"]
timeout_ms = 8000

[[routes."rag.search".choices]]
name = "long"
when = { input_tokens = { min = 8000 }, language = ["de", "fr"] }
provider = "openai"
model = "large"
tier = "priority"
fallback = "usual"

[[routes."rag.search".choices]]
name = "paying"
when = { is_paying = true }
model = "large"
fallback = "usual"

[[routes."rag.search".choices]]
name = "usual"
model = "small"
timeout_ms = 3000

[[routes."rag.search".promotions]]
version = "7"
date = 2026-11-19
by = "ana"
verdict = "better"
card = "cards/7.json"
"""


# --- rules --------------------------------------------------------------------------------------
def test_the_first_choice_whose_conditions_hold_is_made():
    route = read_policy(RULES).routes["rag.search"]
    for inputs, name in (
        ({"input_tokens": 8000, "language": "de"}, "long"),
        ({"input_tokens": "8000", "language": "fr"}, "long"),
        ({"input_tokens": 7999, "language": "de"}, "usual"),
        ({"input_tokens": 9000, "language": "en", "is_paying": True}, "paying"),
        ({"is_paying": "true"}, "paying"),
        ({"is_paying": 1}, "usual"),
        ({"language": None, "input_tokens": 9000}, "usual"),
        ({"input_tokens": "many", "language": "de"}, "usual"),
        ({}, "usual"),
        ({"something": "else"}, "usual"),
    ):
        assert route.choose(inputs).name == name, inputs
    long = route.choices[0]
    assert [choice.name for choice in route.chain(long)] == ["long", "usual"]
    assert route.longest_ms(long) == 11_000


@given(
    st.dictionaries(
        st.sampled_from(["input_tokens", "language", "is_paying", "other"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    )
)
def test_equal_inputs_choose_the_same_in_any_order_and_there_always_is_a_choice(inputs):
    route = read_policy(RULES).routes["rag.search"]
    turned = dict(reversed(inputs.items()))
    assert route.choose(inputs) == read_policy(RULES).routes["rag.search"].choose(turned)


def test_rules_have_a_hash_of_what_decides_alone():
    old = read_policy(RULES)
    renamed = read_policy(RULES.replace('owner = "search"', 'owner = "someone"'))
    assert changed_in_place(old, renamed) == []
    moved = read_policy(RULES.replace("min = 8000", "min = 9000"))
    assert len(changed_in_place(old, moved)) == 1
    raised = read_policy(RULES.replace("min = 8000", "min = 9000").replace('"7"', '"8"'))
    assert changed_in_place(old, raised) == []
    assert warnings(old) == []
    unrecorded = RULES.replace('version = "7"\nowner', 'version = "9"\nowner')
    assert "no promotion record" in warnings(read_policy(unrecorded))[0]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('owner = "search"', 'ownr = "search"', 5, "did you mean owner"),
        ('owner = "search"', "owner = 3", 5, "text is needed"),
        ("timeout_ms = 8000", "timeout_ms = 0", 7, "timeout_ms"),
        ("timeout_ms = 3000", "timeout_ms = 3.5", 26, "timeout_ms"),
        ("timeout_ms = 3000", 'when = { language = "de" }', 26, "the last choice"),
        ('when = { is_paying = true }\n', "", 18, "never made"),
        ("is_paying = true", "paying = true", 19, "no input of this route"),
        ("{ min = 8000 }", "{ least = 8000 }", 11, "no such key"),
        ("{ min = 8000 }", "{ min = 9, below = 9 }", 11, "no number"),
        ('["de", "fr"]', "[]", 11, "a list of values"),
        ('fallback = "usual"\n\n[[routes."rag.search".choices]]\nname = "paying"',
         'fallback = "usal"\n\n[[routes."rag.search".choices]]\nname = "paying"', 15, "usual"),
        ("timeout_ms = 3000", 'fallback = "long"', 15, "circle"),
        ('name = "paying"', 'name = "long"', 18, "twice"),
        ('model = "small"\n', "", 23, "no model"),
        ('verdict = "better"', 'verdict = "great"', 32, "one of"),
        ('verdict = "better"', 'verdict = "inconclusive"', 32, "say why"),
        ("date = 2026-11-19", 'date = "yesterday"', 30, "write a day"),
        ('version = "2026-11-20.1"\n', "", 1, "no version"),
        ('["input_tokens", "language", "is_paying"]', '["a", "a"]', 6, "twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_line_and_key(old, new, line, words):
    assert RULES.count(old) == 1
    with pytest.raises(UsageError) as caught:
        read_policy(RULES.replace(old, new), "my.toml")
    assert f"my.toml, line {line}:" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "version = 1", "routes = 3\nversion = 1", "[routes]\n", "nonsense", "[routes.a]\n"]
)
def test_a_file_without_rules_is_refused(text):
    with pytest.raises(UsageError):
        read_policy(text)


def test_a_promotion_against_the_numbers_needs_a_reason():
    said = 'verdict = "worse"\nreason = "the old model is switched off"'
    route = read_policy(RULES.replace('verdict = "better"', said)).routes["rag.search"]
    assert route.promotions[0].reason == "the old model is switched off"


# --- options ------------------------------------------------------------------------------------
def recorded(num=4000, seed=1):
    """Requests to a fast, a good, a cheap and a useless model; the useless one is beaten."""
    random = np.random.default_rng(seed)
    which = random.integers(0, 4, num)
    models = np.array(["fast", "good", "cheap", "useless"])
    tokens = np.exp(random.normal(7, 0.5, num)).astype(np.int64)
    speed, accepted, price = (
        np.array(values)[which]
        for values in ([0.5, 1.0, 1.2, 1.5], [0.8, 0.95, 0.8, 0.7], [3.0, 4.0, 1.0, 5.0])
    )
    return from_flat(
        pl.DataFrame(
            {
                "start_ns": np.arange(num) * 10**9,
                "route": np.full(num, "rag"),
                "request_model": models[which],
                "input_tokens": tokens,
                "e2e_ms": tokens * speed * random.lognormal(0, 0.2, num),
                "outcome": np.where(random.random(num) < accepted, "accepted", "rejected"),
            }
        )
    ).with_columns(cost_usd=pl.Series(price * tokens / 1e6))


def test_the_envelope_is_what_no_other_option_beats():
    found = {o.where["request_model"]: o for o in envelope(recorded(), ["request_model"])}
    assert {name for name, o in found.items() if o.is_on_envelope} == {"fast", "good", "cheap"}
    useless = found["useless"]
    assert useless.is_on_envelope is False
    assert useless.beaten_by is not None
    assert useless.is_sure
    for option in found.values():
        for measured in (option.latency, option.quality, option.cost):
            assert measured.low < measured.value < measured.high
    accepted = recorded().filter(pl.col("request_model") == "good")
    exact = accepted["cost_usd"].sum() / (accepted["outcome"] == "accepted").sum()
    assert found["good"].cost.value == pytest.approx(exact)
    json.dumps([o.document() for o in found.values()], allow_nan=False)


def test_what_is_too_thin_or_unknown_is_not_placed_and_does_not_beat():
    whole = recorded()
    few = whole.filter(pl.col("request_model") == "good").head(10)
    thin = pl.concat([whole.filter(pl.col("request_model") != "good"), few])
    found = {o.where["request_model"]: o for o in envelope(thin, ["request_model"])}
    assert found["good"].is_on_envelope is None
    assert "too few" in found["good"].reason
    unknown = whole.with_columns(
        cost_usd=pl.when(pl.col("request_model") != "cheap").then("cost_usd")
    )
    found = {o.where["request_model"]: o for o in envelope(unknown, ["request_model"])}
    assert "cost" in found["cheap"].reason
    bare = whole.drop("cost_usd").with_columns(outcome=pl.lit(None, pl.String))
    found = envelope(bare, ["request_model"])
    assert [o.where["request_model"] for o in found if o.is_on_envelope] == ["fast"]
    assert envelope(whole.clear(), ["request_model"]) == []
    with pytest.raises(BadInput):
        envelope(whole, ["nope"])


# --- tiers --------------------------------------------------------------------------------------
def tiered(num=3000, down=0.2):
    random = np.random.default_rng(2)
    asked = random.choice(np.array(["priority", "default", "auto", "flex"]), num)
    is_down = (asked == "priority") & (random.random(num) < down)
    received = np.where(is_down, "default", np.where(asked == "auto", "default", asked))
    fast = np.where(received == "priority", 0.5, 1.0)
    return pl.DataFrame(
        {
            "start_ns": np.arange(num) * 10**9,
            "route": np.full(num, "rag"),
            "provider": np.full(num, "openai"),
            "request_model": np.full(num, "m"),
            "service_tier_requested": asked,
            "service_tier": received,
            "ttft_ms": 300 * fast * random.lognormal(0, 0.3, num),
            "cost_usd": np.where(received == "priority", 2.0, 1.0),
        }
    )


def test_a_tier_below_the_one_asked_for_is_a_downgrade():
    calls = tiered()
    found = {row.asked: row for row in downgrades(calls)}
    sent = calls.filter(pl.col("service_tier_requested") == "priority")
    down = sent.filter(pl.col("service_tier") == "default")
    assert found["priority"].num_downgraded == down.height
    assert found["priority"].share == pytest.approx(down.height / sent.height)
    assert found["priority"].ci95[0] < 0.2 < found["priority"].ci95[1]
    assert found["priority"].first_ns == down["start_ns"].min()
    assert found["priority"].received == {
        "priority": sent.height - down.height,
        "standard": down.height,
    }
    for name in ("standard", "auto", "flex"):
        assert found[name].num_downgraded == 0
        assert found[name].num_other == 0


def test_a_tier_that_nobody_told_is_unknown_not_downgraded():
    calls = tiered().with_columns(service_tier=pl.lit(None, pl.String))
    for row in downgrades(calls):
        assert (row.num_downgraded, row.num_unknown, row.share) == (0, row.n, None)
    assert downgrades(calls.drop("service_tier_requested")) == []
    assert downgrades(calls.clear()) == []
    odd = tiered().with_columns(service_tier=pl.lit("platinum"))
    for row in downgrades(odd):
        assert row.num_downgraded == 0
        assert row.num_other == (0 if row.asked == "auto" else row.n)


def test_downgrades_of_sampled_calls_are_those_of_all_that_came():
    weight = pl.when(pl.col("service_tier") == "default").then(2.0).otherwise(6.0)
    kept = tiered().with_columns(weight=weight)
    (found,) = [row for row in downgrades(kept) if row.asked == "priority"]
    sent = kept.filter(pl.col("service_tier_requested") == "priority")
    num_down = sent.filter(pl.col("service_tier") == "default").height
    right = 2 * num_down / (2 * num_down + 6 * (sent.height - num_down))
    assert found.share == pytest.approx(right)
    assert found.ci95[0] < right < found.ci95[1]
    (plain,) = [row for row in downgrades(tiered()) if row.asked == "priority"]
    assert found.share < 0.5 * plain.share
    assert found.n == plain.n == sent.height
    assert (found.num_downgraded, found.received) == (num_down, plain.received)
    ones = tiered().with_columns(weight=pl.lit(1.0))
    assert downgrades(ones) == downgrades(tiered())


def test_what_a_tier_is_worth_is_told_against_the_standard_one():
    found = {row.tier: row for row in worths(tiered(), num_resamples=100)}
    assert found["priority"].ratio == pytest.approx(0.5, abs=0.05)
    assert found["priority"].verdict == "better"
    assert found["priority"].cost_ratio == pytest.approx(2)
    assert found["flex"].verdict in ("equivalent", "inconclusive")


# --- other rules --------------------------------------------------------------------------------
SPLIT = """\
version = 1
[routes.rag]
version = 2
inputs = ["language"]
[[routes.rag.choices]]
name = "german"
when = { language = "de" }
model = "large"
fallback = "other"
[[routes.rag.choices]]
name = "other"
model = "small"
"""


def routed(num=6000, seed=3):
    """Half of each language went to each model, by chance; the large one takes twice the time."""
    random = np.random.default_rng(seed)
    is_large = random.random(num) < 0.5
    is_german = random.random(num) < 0.3
    tokens = np.exp(random.normal(7, 0.5, num)).astype(np.int64)
    took = tokens * np.where(is_large, 2.0, 1.0) * np.where(is_german, 1.5, 1.0)
    return from_flat(
        pl.DataFrame(
            {
                "start_ns": np.arange(num) * 10**9,
                "route": np.full(num, "rag"),
                "request_model": np.where(is_large, "large", "small"),
                "language": np.where(is_german, "de", "en"),
                "input_tokens": tokens,
                "e2e_ms": took * random.lognormal(0, 0.1, num),
            }
        )
    ).with_columns(cost_usd=pl.Series(np.where(is_large, 4.0, 1.0)))


def test_other_rules_are_told_from_requests_that_already_went_there():
    requests = routed()
    found = projected(requests, read_policy(SPLIT), "rag", CardRules(num_resamples=200))
    assert found.moved_share == pytest.approx(0.5, abs=0.03)
    assert found.supported_share == 1
    # what these very requests would have taken: each language to its model
    is_german = (requests["language"] == "de").to_numpy()
    base = requests["input_tokens"].to_numpy() * np.where(is_german, 1.5, 1.0)
    truth = np.quantile(base * np.where(is_german, 2.0, 1.0), 0.5)
    row = next(m for m in found.document()["projected"]["metrics"]
               if m["name"] == "e2e_ms" and m["quantile"] == 0.5)  # fmt: skip
    assert row["cand"] == pytest.approx(truth, rel=0.06)
    assert row["ci95"][0] < truth / row["base"] < row["ci95"][1]
    mean = next(m for m in found.document()["projected"]["means"]
                if m["name"] == "cost_per_request_usd")  # fmt: skip
    assert mean["cand"] == pytest.approx(1 + 3 * is_german.mean(), rel=0.02)
    assert found.document()["assumptions"]


def test_rules_that_are_followed_already_change_nothing():
    requests = routed().with_columns(request_model=pl.when(pl.col("language") == "de")
                                     .then(pl.lit("large")).otherwise(pl.lit("small")))  # fmt: skip
    found = projected(requests, read_policy(SPLIT), "rag", CardRules(num_resamples=100))
    assert (found.moved_share, found.supported_share) == (0, 1)
    for row in found.document()["projected"]["metrics"]:
        if row["ratio"] is not None:
            assert row["ratio"] == pytest.approx(1)


def test_what_was_never_recorded_is_not_told():
    unseen = read_policy(SPLIT.replace('model = "large"', 'model = "huge"'))
    found = projected(routed(), unseen, "rag", CardRules(num_resamples=100))
    assert found.supported_share == pytest.approx(0.7, abs=0.03)
    german = found.choices[0]
    assert german["supported_share"] == 0
    nothing = read_policy(SPLIT.replace('"large"', '"huge"').replace('"small"', '"tiny"'))
    none = projected(routed(), nothing, "rag", CardRules(num_resamples=100))
    assert none.card is None
    assert none.document()["projected"] is None
    with pytest.raises(NotEnoughData):
        projected(routed().drop("request_model"), unseen, "rag")
    with pytest.raises(NotEnoughData):
        projected(routed().with_columns(route=pl.lit("other")), unseen, "rag")


def test_a_shorter_timeout_cuts_what_is_seen():
    short = read_policy(SPLIT.replace('model = "small"', 'model = "small"\ntimeout_ms = 1500'))
    found = projected(routed(), short, "rag", CardRules(num_resamples=100)).document()
    rates = {row["name"]: row for row in found["projected"]["rates"]}
    assert rates["timeout_rate"]["cand"] > 0.1


def test_recorded_decisions_can_be_made_again():
    requests = routed().with_columns(
        policy_version=pl.lit("2"),
        route_chosen=pl.when(pl.int_range(pl.len()) < 100)
        .then(pl.lit("nonsense"))
        .otherwise(
            pl.when(pl.col("language") == "de").then(pl.lit("german")).otherwise(pl.lit("small"))
        ),
    )
    found = projected(requests, read_policy(SPLIT), "rag", CardRules(num_resamples=50))
    assert (found.num_replayed, found.num_other) == (5900, 0)
