import pytest

from longpole.errors import UsageError
from longpole_analytics.attribution import CauseRules
from longpole_analytics.changes import ChangeRules
from longpole_analytics.thresholds import configured, overridden


def test_inner_and_outer_thresholds_are_keys_of_one_table():
    rules = overridden(CauseRules(), {"max_causes": 3, "min_low": 1, "per_bin": 99}, "t")
    assert (rules.max_causes, rules.search.min_low, rules.strata.per_bin) == (3, 1.0, 99)
    assert rules.search.min_risk_ratio == CauseRules().search.min_risk_ratio
    assert overridden(CauseRules(), {}, "t") == CauseRules()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"min_lo": 1.0}, "did you mean 'min_low'"),
        ({"colour": 1.0}, "known: max_causes"),
        ({"max_causes": 2.5}, "max_causes = 2.5: expected a whole number"),
        ({"min_low": True}, "expected a number"),
        ({"min_low": -1}, "expected a number"),
        ({"min_low": "high"}, "expected a number"),
        ({"min_low": float("nan")}, "expected a number"),
    ],
)
def test_what_is_no_threshold_is_refused_by_name(table, words):
    with pytest.raises(UsageError, match=words):
        overridden(CauseRules(), table, "analytics.causes")


def test_without_a_file_the_defaults_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert configured(ChangeRules(), "changes") == ChangeRules()
