"""``longpole queueing``: load, saturation and capacity by model, as text and as a document."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from longpole.errors import BadInput, NotEnoughData
from longpole_analytics.queueing import waits
from longpole_analytics.queueing_command import queueing

SERVICE_S = 0.5


def arrivals(rate, n=600, seed=1, servers=1):
    """Requests of half a second that come at random and wait as theory says, first come first."""
    random = np.random.default_rng(seed)
    at = np.cumsum(random.exponential(1 / rate, n))
    service = random.exponential(SERVICE_S, n)
    wait = waits(at, service, servers)
    end = at + wait + service
    begun = np.searchsorted(np.sort(at), at, side="right")
    in_flight = begun - np.searchsorted(np.sort(end), at, side="right")
    return pl.DataFrame(
        {
            "start_ns": (at * 1e9).astype(np.int64),
            "queue_ms": wait * 1e3,
            "model_ms": (wait + service) * 1e3,
            "e2e_ms": (wait + service) * 1e3,
            "in_flight": in_flight.astype(float),
        }
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("queue") / "flat.parquet"
    busy = arrivals(1.6).with_columns(request_model=pl.lit("busy"))
    idle = arrivals(0.2, 100).with_columns(request_model=pl.lit("idle"))
    pl.concat([busy, idle]).write_parquet(path)
    return path


def run(*arguments):
    result = CliRunner().invoke(queueing, [str(a) for a in arguments], env={"COLUMNS": "140"})
    if result.exception is not None:
        raise result.exception
    return result


def by_model(*arguments):
    found = json.loads(run(*arguments, "--json").stdout)
    assert found["schema"] == "longpole.queueing/1"
    return {group["where"].get("request_model"): group for group in found["groups"]}


def test_each_model_has_a_queue_of_its_own(file) -> None:
    found = by_model(file, "--servers", "1")
    assert list(found) == ["busy", "idle"]
    assert found["busy"]["utilisation"] == pytest.approx(0.8, abs=0.15)
    assert found["idle"]["utilisation"] < 0.2
    assert found["busy"]["arrival_variation2"] == pytest.approx(1.0, abs=0.3)
    assert found["busy"]["theory_wait_ms"] > 500 > found["idle"]["theory_wait_ms"]
    assert found["busy"]["queue"]["knee_in_flight"] is not None
    assert sum(each["n"] for each in found["busy"]["queue"]["bins"]) == 600
    assert found["busy"]["tpot"] == {"knee_in_flight": None, "bins": []}


def test_littles_law_holds_of_whole_data_and_not_of_half(file, tmp_path) -> None:
    assert by_model(file)["busy"]["little"]["is_consistent"]
    half = pl.read_parquet(file).filter(pl.col("request_model") == "busy").gather_every(2)
    half.write_parquet(tmp_path / "half.parquet")
    assert not by_model(tmp_path / "half.parquet")["busy"]["little"]["is_consistent"]


def test_capacity_is_the_fewest_servers_that_keep_the_wait(file) -> None:
    waiting = by_model(file, "--target-wait", "100")["busy"]["capacity"]
    patient = by_model(file, "--target-wait", "100000")["busy"]["capacity"]
    assert waiting["needed"] > patient["needed"] == 1
    assert waiting["advised"] >= waiting["needed"]
    assert waiting["wait_ms"] <= 100
    assert by_model(file)["busy"]["capacity"] is None


def test_all_together_by_another_column_or_by_none(file, tmp_path) -> None:
    assert list(by_model(file, "--by", "")) == [None]
    arrivals(1.0, 50).write_csv(tmp_path / "plain.csv")
    (only,) = by_model(tmp_path / "plain.csv").values()
    assert only["n"] == 50
    with pytest.raises(BadInput, match="--by planet"):
        run(file, "--by", "planet")


def test_the_text_says_load_verdict_and_capacity(file) -> None:
    text = run(file, "--servers", "1", "--target-wait", "100").stdout
    for words in ("request_model=busy", "busy 8", "requests in flight", "capacity:", "theory"):
        assert words in text


def test_a_growing_wait_is_saturation(tmp_path) -> None:
    arrivals(4.0).write_parquet(tmp_path / "flat.parquet")
    (found,) = by_model(tmp_path / "flat.parquet", "--servers", "1").values()
    assert found["is_saturated"]
    assert found["is_growing"]
    assert "saturated: " in run(tmp_path / "flat.parquet", "--servers", "1").stdout


def test_nothing_to_queue_is_said(tmp_path) -> None:
    arrivals(1.0, 1).write_parquet(tmp_path / "one.parquet")
    with pytest.raises(NotEnoughData):
        run(tmp_path / "one.parquet")
