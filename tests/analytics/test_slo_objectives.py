"""Objectives in both forms: what is read, what is refused and by which name."""

import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from longpole.errors import UsageError
from longpole_analytics.slo import openslo
from longpole_analytics.slo.objectives import (
    CANCELLED,
    CLASSES,
    METRICS,
    OUTCOMES,
    SEVERITIES,
    Floor,
    Objective,
    Rule,
    apart,
    default_rules,
    from_tables,
    minutes,
    span,
    warnings,
)
from longpole_analytics.slo.writing import to_openslo, to_toml

TOML = """
[slo.rag-ttft]
metric = "ttft_ms"
threshold = 2000
target = 0.99
period = "30d"
where = "route = 'rag.search'"
class = "interactive"
owner = "search"
"""
YAML = """
apiVersion: openslo/v1
kind: SLO
metadata:
  name: rag-ttft
  annotations:
    example.com/other: theirs
spec:
  service: search
  indicator:
    metadata: {name: rag-ttft-indicator}
    spec:
      thresholdMetric:
        metricSource:
          type: longpole
          spec:
            metric: ttft_ms
            where: route = 'rag.search'
            class: interactive
            owner: search
  timeWindow:
  - {duration: 30d, isRolling: true}
  budgetingMethod: Occurrences
  objectives:
  - {displayName: fast, op: lte, value: 2000, target: 0.99}
"""
RATIO = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: up}
spec:
  service: search
  indicator:
    metadata: {name: up-indicator}
    spec:
      ratioMetric:
        counter: true
        good: {metricSource: {type: longpole, spec: {metric: availability}}}
        total: {metricSource: {type: longpole, spec: {where: "route = 'a'"}}}
  timeWindow: [{duration: 4w, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.999}]
"""
READ = Objective(
    "rag-ttft", "ttft_ms", 0.99, 2000.0, 43_200, "route = 'rag.search'", "interactive", "search",
    rules=default_rules(43_200),
)  # fmt: skip


def tables(**changes):
    table = tomllib.loads(TOML)["slo"]["rag-ttft"] | changes
    return {"rag-ttft": {key: value for key, value in table.items() if value is not None}}


def changed(text, path, value):
    """The YAML with one place changed; ``...`` takes it out."""
    document = yaml.safe_load(text)
    place = document
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return yaml.safe_dump(document)


def test_the_same_objective_is_read_from_both_forms():
    assert from_tables(tomllib.loads(TOML)["slo"]) == [READ]
    assert openslo.read(YAML, "a.yaml") == [READ]
    assert READ.text == "ttft_ms <= 2000 for 99 % over 30d"


def test_a_ratio_is_read():
    (found,) = openslo.read(RATIO, "a.yaml")
    assert (found.metric, found.where, found.period_min) == ("availability", "route = 'a'", 40_320)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": 1.0}, "target 1: must be above 0 and below 1.*no budget"),
        ({"target": 1}, "no budget"),
        ({"target": 0}, "promises nothing"),
        ({"target": 99}, "write 0.99 for 99 %"),
        ({"target": float("nan")}, "expected a number"),
        ({"target": True}, "expected a number"),
        ({"target": None}, "no target"),
        ({"metric": "ttft"}, "metric 'ttft' is not known; did you mean 'ttft_ms'"),
        ({"metric": None}, "no metric"),
        ({"metric": "availability"}, "takes no threshold"),
        ({"threshold": None}, "needs a threshold"),
        ({"threshold": 0}, "above 0"),
        ({"threshold": "2s"}, "threshold '2s': expected a number"),
        ({"period": None}, "is no duration"),
        ({"period": "month"}, "is no duration"),
        ({"period": "30m"}, "must be 1h to 92d"),
        ({"period": "93d"}, "must be 1h to 92d"),
        ({"class": "batch"}, "class 'batch' is not known"),
        ({"where": " "}, "where: expected text"),
        ({"tresholds": 1}, "unknown key 'tresholds'; did you mean 'threshold'"),
        ({"cancelled": "ignored"}, "cancelled 'ignored' is not known"),
        ({"min_bad": -1}, "min_bad '-1'"),
        ({"for": "2d"}, "must be 0m to 1d"),
        ({"floors": {"metric": "accepted"}}, "floors: expected a list"),
        ({"floors": [{"metric": "quality", "target": 0.9}]}, "needs a threshold"),
        ({"rules": [{"severity": "page", "long": "1h", "short": "5m"}]}, "a factor above 0"),
        ({"rules": [{"severity": "page", "long": "1h", "short": "1h", "factor": 2}]},
         "short '1h': must be 1m to less than the long window"),
        ({"rules": [{"severity": "page", "long": "31d", "short": "1h", "factor": 2}]},
         "long '31d': must be 2m to the period"),
        ({"rules": [{"severity": "page", "long": "1h", "short": "0m", "factor": 2}]}, "short '0m'"),
        ({"rules": [{"severity": "warn", "long": "1h", "short": "5m", "factor": 2}]}, "'warn'"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused_by_name(changes, said):
    with pytest.raises(UsageError, match=said):
        from_tables(tables(**changes))


def test_bad_names_are_refused():
    for name in ("", "a b", "-a", "a" * 49, "a\x1b[2J", "ä"):
        with pytest.raises(UsageError, match="an id has letters"):
            from_tables({name: tables()["rag-ttft"]})
    with pytest.raises(UsageError, match="expected a table"):
        from_tables({"a": 3})


def test_ids_that_could_be_taken_for_each_other_are_refused():
    with pytest.raises(UsageError, match=r"'a_b' in x\.toml and 'A\.B' in y\.toml"):
        apart([(Objective("a_b", "accepted", 0.9, None, 60), "x.toml"),
               (Objective("A.B", "accepted", 0.9, None, 60), "y.toml")])  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["apiVersion"], "openslo/v2alpha", "apiVersion 'openslo/v2alpha' is not supported"),
        (["kind"], "SLI", "kind 'SLI' is not supported"),
        (["kind"], "DataSource", "kind 'DataSource' is not supported"),
        (["status"], {}, "status is not supported"),
        (["metadata", "name"], ..., "metadata has no name"),
        (["metadata", "annotations", "longpole.dev/sink"], "x", "sink is not supported"),
        (["spec", "budgetingMethod"], "Timeslices", "budgetingMethod 'Timeslices' is not supp"),
        (["spec", "budgetingMethod"], "RatioTimeslices", "'RatioTimeslices' is not supported"),
        (["spec", "timeWindow", 0], {"duration": "1M", "isRolling": False,
         "calendar": {"startTime": "2026-01-01 00:00:00", "timeZone": "UTC"}}, "calendar timeWin"),
        (["spec", "timeWindow", 0, "isRolling"], ..., "calendar timeWindow"),
        (["spec", "timeWindow", 0, "duration"], "1Q", "'1Q' is no duration"),
        (["spec", "indicatorRef"], "x", "indicatorRef is not supported"),
        (["spec", "indicator"], ..., "no indicator"),
        (["spec", "objectives", 0, "timeSliceTarget"], 0.9, "timeSliceTarget is not supported"),
        (["spec", "objectives", 0, "compositeWeight"], 1, "compositeWeight is not supported"),
        (["spec", "objectives", 0, "indicator"], {}, "objectives indicator is not supported"),
        (["spec", "objectives", 0, "targetPercent"], 99, "targetPercent is not supported"),
        (["spec", "objectives", 0, "op"], "gt", "op 'gt' is not supported: write lte"),
        (["spec", "objectives", 0, "op"], "gte", "op 'gte' is not supported: write lte"),
        (["spec", "objectives", 0, "target"], 1.0, "no budget"),
        (["spec", "objectives"], [{"target": 0.9}, {"target": 0.99}], "an SLO for each"),
        (["spec", "indicator", "spec", "thresholdMetric", "metricSource", "type"], "Prometheus",
         "metricSource type 'Prometheus' is not supported"),
        (["spec", "indicator", "spec", "thresholdMetric", "metricSource", "metricSourceRef"], "x",
         "metricSourceRef is not supported"),
        (["spec", "indicator", "spec", "thresholdMetric", "metricSource", "spec", "query"], "x",
         "query is not supported"),
        (["spec", "indicator", "spec", "ratioMetric"], {}, "one of ratioMetric and threshold"),
        (["spec", "alertPolicies"], ["missing"], "'missing' is not in the file"),
        (["spec", "alertPolicies"], [{"kind": "AlertPolicy"}], "expected names of policies"),
    ],
)  # fmt: skip
def test_what_of_openslo_is_not_supported_is_refused_by_name(path, value, said):
    with pytest.raises(UsageError, match=said):
        openslo.read(changed(YAML, path, value), "a.yaml")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("counter", False, "counter: false is not supported"),
        ("bad", {}, "bad is not supported"),
        ("rawType", "success", "rawType is not supported"),
        ("good", {"metricSource": {"type": "longpole",
                                   "spec": {"metric": "availability", "where": "x"}}}, "different"),
    ],
)  # fmt: skip
def test_ratios_that_are_no_counts_of_ours_are_refused(key, value, said):
    path = ["spec", "indicator", "spec", "ratioMetric", key]
    with pytest.raises(UsageError, match=said):
        openslo.read(changed(RATIO, path, value), "a.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "no YAML"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("a: 1\na: 2", "stands twice"),
        ("!!python/object/apply:os.system ['true']", "no YAML that can be read"),
        ("just text", "expected objects"),
        ("[" * 3000, "no YAML"),
        ("a" * (1 << 20) + "b", "split it"),
        ("{apiVersion: openslo/v1, kind: SLO}", "no metadata"),
        ("{apiVersion: openslo/v1, kind: SLO, metadata: {name: a}, spec: 3}", "no spec"),
        ("? [a]\n: 1", "no YAML"),
        (YAML + "---" + YAML, "two objectives have one name"),
    ],
)
def test_broken_yaml_is_one_sentence(text, said):
    with pytest.raises(UsageError, match=said) as raised:
        openslo.read(text, "a.yaml")
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("a.yaml") or said.startswith("two")


def test_rules_of_one_window_or_of_unlike_windows_are_refused():
    slo = Objective("a", "accepted", 0.9, None, 1440, rules=(Rule("page", 60, 5, 3, 1, 2),))
    written = list(yaml.safe_load_all(to_openslo([slo])))
    assert [each["kind"] for each in written] == ["SLO", "AlertPolicy", "AlertPolicy"]
    # met in two minutes running; the format knows no 0m
    inner = written[1]["spec"]["conditions"][0]["spec"]["condition"]
    assert (inner["alertAfter"], inner["lookbackWindow"]) == ("2m", "1h")
    for change, said in (
        (lambda all_: all_[0]["spec"].pop("alertPolicies"), "belongs to no SLO"),
        (lambda all_: all_[0]["spec"]["alertPolicies"].pop(), "belongs to no SLO|lacks its"),
        (lambda all_: all_[1]["metadata"].pop("annotations"), "with one window is not supported"),
        (lambda all_: all_[1]["spec"].update(alertWhenNoData=True), "NoData 'True' is not"),
        (lambda all_: all_[1]["spec"].update(notificationTargets=[1]), "Targets '.1.' is not"),
        (lambda all_: all_[1]["spec"]["conditions"][0].update(conditionRef="x"), "conditionRef is"),
        (lambda all_: all_[1]["spec"]["conditions"][0]["spec"]["condition"].update(threshold=4),
         "differ in more than length"),
        (lambda all_: all_[1]["spec"]["conditions"][0]["spec"]["condition"].update(kind="x"),
         "condition kind 'x' is not supported"),
    ):  # fmt: skip
        broken = list(yaml.safe_load_all(to_openslo([slo])))
        change(broken)
        with pytest.raises(UsageError, match=said):
            openslo.read(yaml.safe_dump_all(broken), "a.yaml")


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(
    str.strip
)
SHARE = st.floats(0.01, 0.9999)


@st.composite
def objectives(draw):
    metric = draw(st.sampled_from(METRICS))
    period = draw(st.integers(60, 92 * 1440))
    threshold = None if metric in OUTCOMES else draw(st.floats(0.1, 1e6))
    rules = []
    for _ in range(draw(st.integers(0, 3))):
        long = draw(st.integers(2, period))
        rules.append(
            Rule(draw(st.sampled_from(SEVERITIES)), long, draw(st.integers(1, long - 1)),
                 draw(st.floats(0.1, 100)), draw(st.integers(0, 1440)), draw(st.integers(0, 1440)))
        )  # fmt: skip
    return Objective(
        draw(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)),
        metric,
        draw(SHARE),
        threshold,
        period,
        where=draw(st.none() | TEXT),
        task_class=draw(st.none() | st.sampled_from(CLASSES)),
        owner=draw(st.none() | TEXT),
        runbook=draw(st.none() | TEXT),
        description=draw(st.none() | TEXT),
        cancelled=draw(st.sampled_from(CANCELLED)),
        floors=tuple(
            draw(st.lists(st.builds(Floor, st.sampled_from(OUTCOMES), SHARE), max_size=2))
        ),
        min_bad=draw(st.integers(0, 50)),
        rules=tuple(rules) or default_rules(period),
    )


@given(objectives())
def test_writing_and_reading_gives_the_same_objective(objective):
    assert openslo.read(to_openslo([objective]), "a.yaml") == [objective]
    assert from_tables(tomllib.loads(to_toml([objective]))["slo"]) == [objective]


def test_an_id_that_is_no_name_of_openslo_is_not_written():
    with pytest.raises(UsageError, match="small letters"):
        to_openslo([Objective("A.b", "accepted", 0.9, None, 60)])


@given(st.integers(0, 200_000))
def test_durations_are_read_back(num):
    assert minutes(span(num), "here") == num


def test_what_is_allowed_and_likely_not_meant_is_said():
    week, wide = from_tables(
        {"week": tables(period="7d")["rag-ttft"], "wide": tables(target=0.9)["rag-ttft"]}
    )
    assert [line.split(":")[0] for line in warnings(week)] == ["rule ticket 24h", "rule ticket 3d"]
    assert "needs 144 % bad, so 5 (50 % bad) is used" in warnings(wide)[0]
    assert warnings(READ) == []
