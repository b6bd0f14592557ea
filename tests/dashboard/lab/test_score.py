"""The score counts as it should, by examples done by hand."""

import json

import pytest

from longpole_dashboard.lab.score import Named, confusion, document, labels, macro_f1, score


def run(truth, verdict, sub="a", sub_verdict="a"):
    return Named("r", 1, truth, verdict, sub, sub_verdict)


def test_f1_of_a_label_is_the_harmonic_mean_of_precision_and_recall() -> None:
    pairs = [("x", "x"), ("x", "x"), ("x", "y"), ("y", "y")]
    x, y = labels(pairs)
    assert (x.name, x.num, x.num_called, x.num_right) == ("x", 3, 2, 2)
    precision, recall = 2 / 2, 2 / 3
    assert x.f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert y.f1 == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert macro_f1((x, y)) == pytest.approx((0.8 + 2 / 3) / 2)
    assert macro_f1(()) is None


def test_a_label_that_is_never_named_right_counts_zero_and_one_that_is_no_truth_not_at_all() -> (
    None
):
    (only,) = labels([("x", "z")])
    assert (only.name, only.f1) == ("x", 0.0)


def test_clean_runs_that_are_called_something_are_counted_apart() -> None:
    found = score([run("normal", "normal")] * 3 + [run("normal", "bad_tail")])
    assert (found.num_clean, found.clean_misnamed) == (4, 0.25)
    assert not found.is_enough
    assert score([run("high_tpot", "high_tpot")]).clean_misnamed is None


def test_the_bars_are_met_by_perfect_runs_alone_or_nearly_so() -> None:
    right = [run(name, name, name, name) for name in ("normal", "bad_tail", "high_tpot")]
    assert score(right * 20).is_enough
    assert not score([]).is_enough
    wrong_cause = [run(*each[2:4], each.sub_truth, "other") for each in right]
    assert not score(wrong_cause).is_enough


def test_the_confusion_has_a_row_a_truth() -> None:
    assert confusion([("x", "y"), ("x", "x"), ("x", "y"), ("a", "a")]) == {
        "a": {"a": 1},
        "x": {"x": 1, "y": 2},
    }


def test_the_document_is_json_and_holds_every_run() -> None:
    found = json.loads(json.dumps(document([run("normal", "normal")], 1.5)))
    assert found["schema"] == "longpole.lab_score/1"
    assert found["runs"][0]["truth"] == "normal"
    assert (found["num_runs"], found["shape_f1"], found["took_s"]) == (1, 1.0, 1.5)
