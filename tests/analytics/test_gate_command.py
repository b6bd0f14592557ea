"""``longpole gate``: exit codes, JUnit, JSON, baselines, and a rollback that waits for evidence."""

import hashlib
import hmac
import json
from xml.etree.ElementTree import fromstring

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests.alerts import fakes

from longpole.cli import main
from longpole_analytics.gates.base import Finding
from longpole_analytics.gates.config import load_gates
from longpole_analytics.gates.quantiles import Quantile, quantile, ratio
from longpole_analytics.gates.rollback import State, decide, key_of

DAY = 1_789_000_000
HOUR = 3600
SLO = """
[slo.ttft]
metric = "ttft_ms"
threshold = 2000
target = 0.95
period = "7d"
"""
P95 = """
[gate.checks.p95]
kind = "regression"
metric = "ttft_ms"
baseline = "baseline.json"
"""
CARD = """
[gate.checks.card]
kind = "scorecard"
base = "version = 'a'"
cand = "version = 'b'"
target = "p50:e2e_ms"
"""


def table(num, seed=1, *, slower=1.0, begin=DAY, bad=0.0):
    """Two versions side by side, an hour long; ``b`` is so much slower."""
    random = np.random.default_rng(seed)
    is_b = np.arange(num) % 2 == 1
    time = random.lognormal(6, 0.3, num) * np.where(is_b, slower, 1.0)
    ttft = np.where(random.random(num) < bad, 5000.0, time)
    return pl.DataFrame(
        {
            "start_ns": (begin + np.arange(num) * HOUR // num) * 10**9,
            "version": np.where(is_b, "b", "a"),
            "route": "r",
            "route_version": "1",
            "ttft_ms": ttft,
            "e2e_ms": ttft + 100,
            "prefill_ms": ttft,
            "outcome": "accepted",
        }
    )


class Bench:
    """A folder with a file of checks and a table of requests."""

    def __init__(self, folder):
        self.folder = folder

    def checks(self, text):
        (self.folder / "gate.toml").write_text(text)

    def data(self, *tables):
        pl.concat(tables).write_parquet(self.folder / "t.parquet")

    def run(self, *words, exit_code=0, at=DAY + HOUR):
        moment = str(np.datetime64(at, "s")) + "Z"
        asked = ["gate", "--config", self.folder / "gate.toml", "--file", self.folder / "t.parquet"]
        result = CliRunner().invoke(main, [str(w) for w in (*asked, "--at", moment, *words)])
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result

    def document(self, *words, **how):
        return json.loads(self.run(*words, "--json", **how).stdout)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)


# --- checks -------------------------------------------------------------------------------------
def test_a_budget_that_is_left_passes_and_one_that_is_used_up_fails(bench):
    bench.checks(SLO + '[gate.checks.promises]\nkind = "budget"\n')
    bench.data(table(2000, bad=0.01))
    assert bench.document()["verdict"] == "pass"
    bench.data(table(2000, bad=0.2))
    document = bench.document(exit_code=3)
    (check,) = document["checks"]
    assert (check["status"], check["kind"]) == ("fail", "budget")
    assert check["details"]["slos"][0]["budget"]["remaining"] < 0
    bench.checks(SLO + '[gate.checks.promises]\nkind = "budget"\nmin_left = 0.9\n')
    bench.data(table(2000, bad=0.01))
    assert "of the budget left" in bench.run(exit_code=3).stdout


def test_a_budget_used_up_by_one_bad_request_is_no_evidence(bench):
    bench.checks(SLO + '[gate.checks.promises]\nkind = "budget"\n')
    few = table(10).with_columns(ttft_ms=pl.when(pl.int_range(10) == 3).then(5000.0).otherwise(9.0))
    bench.data(few)
    assert bench.document(exit_code=4)["verdict"] == "undecided"


def test_a_regression_is_told_against_the_stored_baseline(bench):
    bench.checks(P95)
    bench.data(table(4000, 1))
    assert "--save-baseline" in bench.run(exit_code=2).stderr
    bench.run("--save-baseline", bench.folder / "baseline.json")
    stored = json.loads((bench.folder / "baseline.json").read_text())
    assert stored["schema"] == "longpole.baseline/1"
    assert stored["quantiles"][0]["n"] == 4000
    for seed, slower, code in ((2, 1.0, 0), (3, 1.6, 3)):
        bench.data(table(4000, seed, slower=slower))
        (check,) = bench.document(exit_code=code)["checks"]
        low, high = check["details"]["ci95"]
        assert low < check["details"]["ratio"] < high
    bench.data(table(250, 4, slower=1.15))
    (check,) = bench.document(exit_code=4)["checks"]
    assert check["n_needed"] > 250
    bench.data(table(100, 5, slower=3.0))
    (check,) = bench.document(exit_code=4)["checks"]
    assert "too few" in check["text"]


def test_the_ratio_of_two_quantiles_covers_the_truth():
    """Drawn from one distribution, the interval of the ratio holds 1 about as often as it says."""
    random = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        pair = [
            quantile(pl.DataFrame({"x_ms": random.lognormal(0, 1, 400)}), "x_ms", 0.9)
            for _ in range(2)
        ]
        found = ratio(*pair)
        held += found.low <= 1 <= found.high
    assert held >= 180


def test_nothing_is_known_of_a_ratio_to_nothing():
    none = Quantile("x", None, 0.95, 0, None, None, None)
    zero = Quantile("x", None, 0.95, 500, 0.0, 0.0, 1.0)
    some = Quantile("x", None, 0.95, 500, 5.0, 4.0, None)
    assert ratio(some, none) == ratio(some, zero) == (None, None, None)
    assert ratio(some, some)[0] == 1.0


def test_the_scorecard_decides(bench):
    bench.checks(CARD)
    bench.data(table(3000, 1, slower=0.7))
    assert bench.document()["checks"][0]["details"]["verdict"] == "better"
    bench.data(table(3000, 2, slower=1.5))
    document = bench.document(exit_code=3)
    assert document["checks"][0]["details"]["verdict"] == "worse"
    bench.data(table(24, 3))
    assert bench.document(exit_code=4)["checks"][0]["status"] == "undecided"


def test_coverage_has_a_floor(bench):
    bench.checks('[gate.checks.seen]\nkind = "coverage"\nof = "route"\n')
    bench.data(table(2000))
    assert bench.document()["checks"][0]["details"]["share"] == 1.0
    bench.data(table(2000).drop("route_version"))
    document = bench.document(exit_code=3)
    assert document["checks"][0]["details"]["reasons"][0]["reason"] == "route: no route version"
    bench.data(table(30))
    assert "too few to tell" in bench.run(exit_code=4).stdout


def test_one_that_fails_outweighs_one_that_is_undecided(bench):
    thin = CARD.replace("version = 'a'", "version = 'none'")
    bench.checks('[gate.checks.seen]\nkind = "coverage"\nof = "route"\n' + thin)
    bench.data(table(2000))
    assert bench.document(exit_code=4)["verdict"] == "undecided"
    bench.data(table(2000).drop("route_version"))
    assert bench.document(exit_code=3)["verdict"] == "fail"


def test_junit_tells_the_same_and_hostile_names_are_inert(bench):
    bench.checks(CARD + '[gate.checks.seen]\nkind = "coverage"\nof = "route"\n')
    bad = "</failure><x>\x00\x1b[31m"
    bench.data(table(2000, slower=1.5).drop("route_version").with_columns(route=pl.lit(bad)))
    document = bench.document("--junit", bench.folder / "j.xml", exit_code=3)
    root = fromstring((bench.folder / "j.xml").read_text())
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "2", "0")
    told = {case.get("name"): case for case in suite}
    for check in document["checks"]:
        assert told[check["name"]].get("classname") == f"longpole.{check['kind']}"
        assert told[check["name"]].find("failure") is not None
    bench.data(table(30))
    bench.run("--junit", bench.folder / "j.xml", "--out", bench.folder / "d.json", exit_code=4)
    suite = fromstring((bench.folder / "j.xml").read_text())[0]
    assert suite.get("errors") == "2"
    assert json.loads((bench.folder / "d.json").read_text())["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no checks"),
        ('[gate.checks.x]\nkind = "speed"', "one of budget, coverage, regression, scorecard"),
        ('[gate.checks.x]\nkind = "regression"', "no baseline"),
        ('[gate.checks.x]\nkind = "coverage"\nmin_shar = 1', "did you mean 'min_share'"),
        ('[gate.checks.x]\nkind = "coverage"\nmin_share = 80', "expected a share"),
        ('[gate.checks.x]\nkind = "coverage"\nof = "all"', "one of attributed"),
        (CARD + '[gate.rollback]\nurl = "ftp://x"', "expected http"),
        (CARD + '[gate.rollback]\nurl = "http://x"\nmin_n = 5', "thin evidence"),
        (CARD + '[gate.rollback]\nurl = "http://x"\nconfirmations = 1', "at least 2"),
        (CARD + '[gate.rollback]\nurl = "http://x"\nchecks = ["y"]', "there is no"),
    ],
)
def test_what_cannot_be_is_a_sentence(text, said, bench):
    bench.checks(text)
    bench.data(table(30))
    assert said in bench.run(exit_code=2).stderr


# --- rolling back -------------------------------------------------------------------------------
@pytest.fixture
def hook(bench):
    with fakes.serving(fakes.webhook) as (url, got):
        (bench.folder / "secret").write_text("hush")
        rule = f"""
[gate.rollback]
url = "{url}/undo"
secret = "${{file:{bench.folder}/secret}}"
allow_hosts = "127.0.0.1"
min_n = 500
"""
        bench.checks(CARD + rule)
        yield got


def rolled(bench, exit_code=3, at=DAY + HOUR):
    return bench.document("--rollback", exit_code=exit_code, at=at)["rollback"]


def test_a_rollback_is_asked_for_once_after_two_looks_at_different_requests(bench, hook):
    bench.data(table(3000, 1, slower=1.5))
    assert rolled(bench)["status"] == "confirming"
    assert rolled(bench)["status"] == "waiting"  # the same requests confirm nothing
    assert hook == []
    later = table(3000, 2, slower=1.5, begin=DAY + HOUR)
    bench.data(table(3000, 1, slower=1.5), later)
    assert rolled(bench, at=DAY + 2 * HOUR)["status"] == "sent"
    assert rolled(bench, at=DAY + 2 * HOUR)["status"] == "sent_before"
    (got,) = hook
    assert got.json["schema"] == "longpole.rollback/1"
    assert got.json["confirmations"] == 2
    assert [check["name"] for check in got.json["checks"]] == ["card"]
    stamp = got.headers["x-longpole-timestamp"].encode()
    told = hmac.new(b"hush", stamp + b"." + got.body, hashlib.sha256).hexdigest()
    assert got.headers["x-longpole-signature"] == f"sha256={told}"
    assert "hush" not in (bench.folder / ".longpole-gate.json").read_text()


def test_thin_evidence_never_rolls_back(bench, hook):
    for step in range(4):  # worse for sure, but of few requests
        bench.data(table(600, step, slower=2.0, begin=DAY + step * HOUR))
        assert rolled(bench, at=DAY + (step + 1) * HOUR)["status"] == "not_confirmed"
    bench.data(table(24, 9, slower=2.0))
    assert rolled(bench)["status"] == "not_confirmed"
    assert hook == []


def test_few_new_requests_do_not_confirm_what_many_old_ones_said(bench, hook):
    old = table(3000, 1, slower=1.5)
    bench.data(old)
    rolled(bench)
    bench.data(old, table(100, 2, slower=1.5, begin=DAY + HOUR))
    assert rolled(bench, at=DAY + 2 * HOUR)["status"] == "waiting"
    assert hook == []


def test_a_look_that_passes_begins_anew(bench, hook):
    bench.data(table(3000, 1, slower=1.5))
    assert rolled(bench)["confirmations"] == 1
    bench.data(table(3000, 2, slower=0.7, begin=DAY + HOUR))
    assert rolled(bench, exit_code=0, at=DAY + 2 * HOUR)["confirmations"] == 0
    bench.data(table(3000, 3, slower=1.5, begin=DAY + 2 * HOUR))
    assert rolled(bench, at=DAY + 3 * HOUR)["status"] == "confirming"
    assert hook == []


def test_nothing_is_rolled_back_that_was_not_armed(bench, hook):
    for step in range(3):
        bench.data(table(3000, step, slower=1.5, begin=DAY + step * HOUR))
        assert bench.document(exit_code=3, at=DAY + (step + 1) * HOUR)["rollback"] is None
    assert hook == []
    assert not (bench.folder / ".longpole-gate.json").exists()


def test_one_that_did_not_arrive_is_asked_for_again(bench, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    answers = [(503, {}, b"")] * 3 + [(204, {}, b"")]
    with fakes.serving(lambda _: answers.pop(0)) as (url, got):
        rule = f'[gate.rollback]\nurl = "{url}"\nallow_hosts = "127.0.0.1"\n'
        bench.checks(CARD + rule)
        one, two = table(3000, 1, slower=1.5), table(3000, 2, slower=1.5, begin=DAY + HOUR)
        bench.data(one)
        rolled(bench)
        bench.data(one, two)
        assert rolled(bench, at=DAY + 2 * HOUR)["status"] == "not_delivered"
        assert rolled(bench, at=DAY + 2 * HOUR)["status"] == "sent"
    assert len({each.json["id"] for each in got}) == 1


def test_a_private_place_is_not_sent_to(bench):
    bench.checks(CARD + '[gate.rollback]\nurl = "http://127.0.0.1:9/"\n')
    one, two = table(3000, 1, slower=1.5), table(3000, 2, slower=1.5, begin=DAY + HOUR)
    bench.data(one)
    rolled(bench)
    bench.data(one, two)
    told = rolled(bench, at=DAY + 2 * HOUR)
    assert told["status"] == "not_delivered"
    assert "private address" in told["text"]


def test_other_checks_begin_anew_and_a_broken_state_is_a_sentence(bench, hook):
    bench.data(table(3000, 1, slower=1.5))
    rolled(bench)
    path = bench.folder / ".longpole-gate.json"
    text = (bench.folder / "gate.toml").read_text()
    bench.checks(text.replace("p50:e2e_ms", "p95:e2e_ms"))
    assert rolled(bench)["confirmations"] == 1
    path.write_text("{}")
    assert "delete it" in bench.run("--rollback", exit_code=1).stderr


def test_the_rule_by_itself(bench):
    bench.checks(CARD + '[gate.rollback]\nurl = "http://x"\nconfirmations = 3\n')
    gates = load_gates(bench.folder / "gate.toml")
    rule = gates.rollback
    sure = {"card": Finding("fail", "", 900, is_certain=True)}
    state = State(key_of(gates.checks, rule))
    for number in (1, 2):
        decision = decide(state, sure, sure, number, rule)
        state = decision.state
        assert (decision.is_to_send, state.num) == (False, number)
    assert decide(state, sure, sure, 3, rule).is_to_send
    for unsure in (
        Finding("fail", "", 900),  # the interval does not exclude
        Finding("fail", "", 499, is_certain=True),  # too few
        Finding("undecided", "", 9000),
        Finding("pass", "", 9000),
    ):
        decision = decide(state, {"card": unsure}, {"card": unsure}, 3, rule)
        assert (decision.is_to_send, decision.state.num) == (False, 0)
