"""``longpole measures``: what spans and calls tell, through the command and in its document."""

import json
import time

import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import NotEnoughData, UsageError
from longpole.vocab import keys
from longpole_analytics.measures_command import measures

from .tables import spans_table
from .traces import call, span

S = 1000


def workflow(number, *, used, attempts=1, state="used", accepted=2, at_s=None):
    """A root with three branches, a guess, a call with reasoning, and the engine's side of it."""
    at = (number if at_s is None else at_s) * S
    ids = [f"{number * 16 + place:016x}" for place in range(1, 8)]
    root, left, middle, right, guess, chat, engine = ids
    trace = {"trace_id": f"{number + 1:032x}"}
    names = ("left", "middle", "right")
    branches = [
        span(own, root, at, at + 40, attributes={keys.BRANCH_NAME: name}, **trace)
        for own, name in zip((left, middle, right), names, strict=True)
    ]
    ahead = {keys.SPECULATION_STATE: state, keys.SPECULATION_TTL: "5", keys.SPECULATION_AGE: "1"}
    drafts = {
        keys.ENGINE_NUM_STEPS: "10",
        keys.ENGINE_NUM_DRAFTED: "30",
        keys.ENGINE_NUM_ACCEPTED: str(10 * accepted),
        keys.ENGINE_NUM_PREEMPTIONS: "0",
    }
    return [
        span(root, None, at, at + 200, attributes={keys.BRANCH_USED: json.dumps(used)}, **trace),
        *branches,
        span(guess, root, at, at + 30, attributes=ahead, **trace),
        call(chat, root, at + 40, at + 190, is_streamed=True, ttft_ns=50_000_000,
             ttfv_ns=80_000_000, input_tokens=10, output_tokens=20, reasoning_tokens=5,
             num_attempts=attempts, retry_ns=20_000_000 * (attempts - 1), route="r",
             request_model="m", provider="p", response_id=f"r{number}", **trace),
        call(engine, chat, at + 45, at + 185, is_engine=True, kind="server",
             instance_id="engine-1", response_id=f"r{number}", attributes=drafts, **trace),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    spans = [
        each
        for number in range(40)
        for each in workflow(
            number,
            used=["left"],
            attempts=2 if number % 10 == 0 else 1,
            state="used" if number % 10 == 0 else "discarded",
        )
    ]
    path = tmp_path_factory.mktemp("spans") / "spans.parquet"
    pq.write_table(spans_table(spans), path)
    return path


def run(*arguments):
    result = CliRunner().invoke(measures, [str(a) for a in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_the_document_counts_what_the_spans_tell(file) -> None:
    found = json.loads(run("--file", file, "--json").stdout)
    assert found["schema"] == "longpole.measures/1"
    assert found["num_calls"] == 40
    assert (found["retries"]["retried"]["k"], found["retries"]["amplification"]) == (4, 1.1)
    assert found["retries"]["failed_ms"] == 80.0
    assert found["reasoning"]["of_output"] == 0.25
    assert found["reasoning"]["before_visible"]["p50_ms"] == 30.0
    assert found["fan_out"]["used"] == {
        "k": 40,
        "n": 120,
        "value": pytest.approx(1 / 3),
        "ci95": [pytest.approx(0.255, abs=0.005), pytest.approx(0.422, abs=0.005)],
    }
    assert found["fan_out"]["unused_ms"] == 80 * 40.0
    assert found["guesses"]["verdict"] == "loses"
    assert found["guesses"]["wasted_ms"] == 36 * 30.0
    drafts = found["drafts"]
    assert (drafts["acceptance"], drafts["tokens_per_step"]) == (pytest.approx(2 / 3), 3.0)
    assert drafts["speedup"] == pytest.approx(3 / 1.3)
    assert drafts["is_worth_it"]
    assert found["cold_starts"]["cold"]["value"] is None


def test_the_text_says_each_measure_once_and_the_unknown_as_such(file) -> None:
    lines = run(file).stdout.splitlines()
    named = [line.split("  ")[0] for line in lines]
    assert len(named) == len(set(named))
    assert "cold starts   unknown: no call tells" in lines
    assert any("36" not in line and line.startswith("branches") and "33 %" in line
               for line in lines)  # fmt: skip
    assert any(line.startswith("guesses") and "loses" in line for line in lines)


def test_a_condition_keeps_calls_and_their_workflows(file) -> None:
    found = json.loads(run(file, "--where", "num_attempts = 2", "--json").stdout)
    assert found["num_calls"] == 4
    assert found["fan_out"]["used"]["n"] == 12
    assert found["guesses"]["hits"]["n"] == 4


def test_drafts_that_cost_more_are_not_worth_it(file) -> None:
    found = json.loads(run(file, "--draft-cost", "0.9", "--json").stdout)
    assert not found["drafts"]["is_worth_it"]


def test_a_flat_table_of_calls_leaves_steps_unknown(tmp_path) -> None:
    frame = pl.DataFrame(
        {"num_attempts": [1, 3], "retry_ms": [0.0, 50.0], "e2e_ms": [100.0, 150.0]}
    )
    frame.write_csv(tmp_path / "calls.csv")
    found = json.loads(run(tmp_path / "calls.csv", "--json").stdout)
    assert found["retries"]["amplification"] == 2.0
    assert found["retries"]["failed_share"] == 0.2
    assert found["fan_out"] is found["guesses"] is found["drafts"] is None
    frame.head(0).write_csv(tmp_path / "none.csv")
    with pytest.raises(NotEnoughData):
        run(tmp_path / "none.csv")


def test_thresholds_come_from_the_configuration(file, tmp_path, monkeypatch) -> None:
    (tmp_path / "longpole.toml").write_text("[analytics.measures]\nleast_hits = 0.02\n")
    monkeypatch.chdir(tmp_path)
    assert json.loads(run(file, "--json").stdout)["guesses"]["verdict"] == "pays"
    (tmp_path / "longpole.toml").write_text("[analytics.measures]\nleast_hit = 0.1\n")
    with pytest.raises(UsageError, match="least_hits"):
        run(file)


def test_the_command_is_on_the_switchboard(file) -> None:
    result = CliRunner().invoke(main, ["measures", str(file), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["num_calls"] == 40


def test_shapes_reads_the_facts_of_spans(tmp_path) -> None:
    """Fewer accepted drafts, slower decoding, told by the attributes of engine spans."""
    from longpole_analytics.shapes_command import shapes

    now_s = int(time.time())
    spans = []
    for number in range(160):
        is_new = number >= 80
        at_s = now_s - 3600 - number if is_new else now_s - 2 * 86_400 - number
        facts = workflow(number, used=["left"], accepted=1 if is_new else 2, at_s=at_s)
        for each in facts:
            if each.is_engine:
                accepted = {keys.ENGINE_NUM_ACCEPTED: str((10 if is_new else 20) + number % 5)}
                each = each._replace(attributes=each.attributes | accepted)  # noqa: PLW2901
            elif each.is_model_call:
                each = each._replace(tpot_ms=(30.0 if is_new else 10.0) + number % 3)  # noqa: PLW2901
            spans.append(each)
    path = tmp_path / "spans.parquet"
    pq.write_table(spans_table(spans), path)
    result = CliRunner().invoke(shapes, [str(path), "--json"])
    assert result.exception is None
    (found,) = json.loads(result.stdout)["slices"]
    assert found["shape"] == "high_tpot"
    assert "poor draft acceptance" in found["sub_cause"]
    assert "draft_acceptance" in [row["metric"] for row in found["evidence"]]
