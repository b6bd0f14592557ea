"""What the lab cannot do is said before anything is played; values have the unit they have."""

import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole_dashboard.lab.values import written


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "Missing argument 'NAME'"),
        (("run", "nonsense"), "no recipe 'nonsense': choose clean-calls"),
        (("run", "slow-tools", "--scale", "0"), "--scale"),
        (("run", "slow-tools", "--scale", "nan"), "nan is no number"),
        (("run", "slow-tools", "--seed", "x"), "--seed"),
        (("run", "slow-tools", "--db", "FILE/db"), "--db"),
        (("run", "slow-tools", "--db", "FILE"), "--db"),
        (("score", "slow-tools", "nonsense"), "no recipe 'nonsense'"),
        (("score", "slow-tools", "--seeds", "0"), "--seeds"),
        (("score", "slow-tools", "--runs", "FILE/runs"), "--runs"),
        (("whatif", "nonsense"), "no knob 'nonsense': choose faster-search"),
        (("whatif", "nearer", "--runs", "FILE/runs"), "--runs"),
    ],
)
def test_nonsense_is_exit_2_and_says_what_there_is(tmp_path, words, said) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = CliRunner().invoke(main, ["lab", *(word.replace("FILE", str(file)) for word in words)])
    assert done.exit_code == 2, done.output
    assert said in done.output


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("queue_ms", 154.2, "154 ms"),
        ("rank_correlation_in_flight_queue_ms", 0.876, "0.88"),
        ("slope_in_flight_queue_ms", 46.9, "46.9 ms"),
        ("cached_share", 0.146, "15 %"),
        ("misses_for_this_reason", 1.0, "100 %"),
        ("uncached_tokens", 1712.0, "1 712"),
        ("in_flight", 6.0, "6"),
        ("ttft_adjusted_p99_over_p50", 5.5024, "5.5"),
    ],
)
def test_a_value_has_the_unit_of_its_metric(metric, value, text) -> None:
    assert written(metric, value) == text
