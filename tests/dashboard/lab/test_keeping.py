"""Runs are kept one by one, and what ended goes on where it was."""

import json
from contextlib import nullcontext

import pytest

from longpole.errors import BadInput, LongpoleError, UsageError
from longpole_dashboard.lab.keeping import MAX_FAILED, Work, kept_runs, played_all

PLAN = [("a", 1), ("b", 1), ("a", 2)]


def work(file=None):
    return Work(PLAN, kept_runs(file, "recipe"), file)


def made(name, seed):
    return {"recipe": name, "seed": seed}


class Plays:
    """Plays at once; what is in ``fails`` cannot be played so often."""

    def __init__(self, **fails):
        self.fails, self.played, self.said = fails, [], []

    def __call__(self, stage, name, seed):
        self.played.append((name, seed))
        if self.fails.get(name, 0) > 0:
            self.fails[name] -= 1
            raise LongpoleError("no engine")
        return made(name, seed)

    def all(self, wanted):
        played_all(wanted, lambda: nullcontext(None), self, self.said.append)


def test_what_is_in_the_file_is_not_played_again(tmp_path) -> None:
    file = tmp_path / "runs.jsonl"
    Plays().all(Work(PLAN[:2], {}, file))
    rest, again = Plays(), Plays()
    rest.all(work(file))
    assert rest.played == [("a", 2)]
    again.all(work(file))
    assert again.played == []
    assert kept_runs(file, "recipe") == {each: made(*each) for each in PLAN}


def test_a_line_that_was_being_written_does_not_count(tmp_path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(made("a", 1)) + '\n{"recipe": "b", "se')
    plays = Plays()
    plays.all(work(file))
    assert plays.played == [("b", 1), ("a", 2)]
    assert len(kept_runs(file, "recipe")) == 3


def test_what_cannot_be_played_is_tried_again_after_the_others(tmp_path) -> None:
    plays, wanted = Plays(a=1), work(tmp_path / "runs.jsonl")
    plays.all(wanted)
    assert plays.played == [("a", 1), ("b", 1), ("a", 2), ("a", 1)]
    assert set(wanted.known) == set(PLAN)
    assert any("once more" in line for line in plays.said)


def test_where_nothing_can_be_played_it_ends_and_keeps_what_was(tmp_path) -> None:
    plays, file = Plays(a=9, b=9), tmp_path / "runs.jsonl"
    with pytest.raises(LongpoleError, match="no engine"):
        plays.all(work(file))
    assert len(plays.played) == MAX_FAILED
    second = Plays(b=2)
    with pytest.raises(LongpoleError, match="no engine"):
        second.all(work(file))
    assert set(kept_runs(file, "recipe")) == {("a", 1), ("a", 2)}


def test_a_file_that_cannot_be_kept_is_refused_before_anything_is_played(tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "file", tmp_path / "file" / "runs.jsonl"):
        with pytest.raises(UsageError, match="--runs"):
            kept_runs(path, "recipe")
    assert kept_runs(tmp_path / "new" / "runs.jsonl", "recipe") == {}
    assert (tmp_path / "new").is_dir()


def test_a_file_of_something_else_is_refused_with_its_line(tmp_path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(made("a", 1)) + '\n{"knob": "a"}\n')
    with pytest.raises(BadInput, match="line 2"):
        kept_runs(file, "recipe")
