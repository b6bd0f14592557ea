"""A page that waits a moment for its cause, and floors, which are watched like promises."""

from urllib.parse import parse_qs, urlsplit

import pytest

from longpole_analytics.alerts.book import Silence
from longpole_analytics.slo.floors import with_floors
from longpole_analytics.slo.objectives import from_tables

from .harness import slo

PAGE = ("firing", "page")


def bad_now(it, num):
    """Bad requests of a new prompt, all at this moment."""
    row = {"is_bad": True, "route": "search", "prompt_version": "v42"}
    it.store.add_rows([row | {"start_ns": int(it.now_s * 1e9)}] * num)


def burns_on_little(scene, **given):
    """Half an hour of few requests, then as many bad ones as burn and yet show no slice."""
    it = scene(patience_s=10.0, **given)
    it.fill(30, good=1)
    bad_now(it, 6)
    it.look(it.now_s + 1)
    return it


class TestPatience:
    def test_a_page_waits_for_its_cause_and_goes_out_once(self, scene):
        it = burns_on_little(scene)
        assert it.status == {"search-ttft": "firing"}
        assert it.got == []
        it.open()  # a restart forgets nothing
        bad_now(it, 40)
        it.look(it.now_s + 5)
        (event,) = it.got
        assert event["cause"]["slices"][0]["where"] == {"prompt_version": "v42"}
        assert event["started_at"] < event["updated_at"]
        it.look(it.now_s + 5)
        assert it.told == [PAGE]

    def test_one_whose_cause_stays_unknown_goes_out_when_the_wait_is_over(self, scene):
        it = burns_on_little(scene)
        it.look(it.now_s + 5)
        assert it.got == []
        it.look(it.now_s + 5)
        assert it.told == [PAGE]
        assert "no slice explains it" in it.got[0]["summary"]

    def test_nobody_waits_for_the_stage_of_what_is_bad_by_outcome(self, scene):
        given = slo(metric="availability")
        del given["threshold"]
        it = scene(patience_s=10.0, a=given)
        it.fill(30, good=1)
        at = int(it.now_s) // 60 * 60 * 10**9
        row = {"start_ns": at, "is_bad": False, "route": "search", "outcome": "failed"}
        it.store.add_rows([row] * 6)
        it.look(it.now_s + 1)
        assert it.told == [PAGE]

    def test_what_ended_before_it_was_told_is_not_told(self, scene):
        it = burns_on_little(scene)
        it.now_s += 8 * 60
        it.store.add(int(it.now_s) // 60 - 1, good=60)
        it.look()
        assert it.got == []


ACCEPTED = {"metric": "accepted", "target": 0.9}


class TestFloors:
    @staticmethod
    def rejected(it, minutes=20):
        """Requests that are quick, and mostly rejected."""
        for _ in range(minutes):
            at = int(it.now_s) // 60 * 60 * 10**9
            row = {"start_ns": at, "is_bad": False, "route": "search"}
            rows = [row | {"outcome": "rejected", "prompt_version": "v42"}] * 8
            it.store.add_rows([*rows, *([row | {"outcome": "accepted"}] * 2)])
            it.now_s += 60
        it.look()

    def test_a_latency_bought_with_worse_answers_is_told(self, scene):
        it = scene(search=slo(floors=[ACCEPTED], owner="team"))
        self.rejected(it)
        assert it.status == {"search": "inactive", "search/accepted": "firing"}
        (event,) = it.got
        assert event["slo"]["id"] == "search/accepted"
        assert event["slo"]["objective"] == "accepted for 90 % over 24h"
        assert event["slo"]["owner"] == "team"
        assert event["slo"]["description"].startswith("a floor of search: ttft_ms <= 2000")
        assert event["summary"].startswith("PAGE search/accepted: burn ")
        (shown,) = parse_qs(urlsplit(event["links"]["slo"]).query)["slo"]
        assert shown == "search"
        assert 'slo="search/accepted"' in it.watch.prometheus()

    @pytest.mark.parametrize(("of", "num"), [("search", 0), ("search/accepted", 0), ("other", 1)])
    def test_a_silence_of_the_promise_keeps_its_floors_quiet(self, scene, of, num):
        it = scene(search=slo(floors=[ACCEPTED]))
        ledger = it.ledger()
        ledger.silence(Silence(of, "", it.now_s + 1e6), "")
        ledger.close()
        self.rejected(it)
        assert len(it.got) == num

    def test_how_good_answers_are_is_read_from_what_the_outcome_tells(self, scene):
        quality = {"metric": "quality", "threshold": 0.7}
        it = scene(good=slo(**quality, target=0.9), quick=slo(floors=[quality | {"target": 0.8}]))
        at = int(it.now_s) // 60 * 60 * 10**9
        row = {"start_ns": at, "is_bad": False, "route": "search", "outcome": "accepted"}
        fine = [row | {"quality": 0.9, "prompt_version": "v41"}] * 30
        poor = [row | {"quality": 0.2, "prompt_version": "v42"}] * 40
        it.store.add_rows([*fine, *poor, *([row] * 5)])  # the last ones do not say
        it.look(it.now_s + 30)
        assert it.status == {
            "good": "firing",
            "quick": "inactive",
            "quick/quality-0.7": "firing",
        }
        for event in it.got:
            assert event["events"] == {"bad": 40, "total": 70}
            assert event["cause"]["slices"][0]["where"] == {"prompt_version": "v42"}

    def test_floors_have_names_of_their_own_and_the_higher_one_counts(self):
        floors = [
            ACCEPTED,
            {"metric": "quality", "threshold": 0.7, "target": 0.8},
            {"metric": "quality", "threshold": 0.5, "target": 0.95},
            {"metric": "quality", "threshold": 0.7, "target": 0.6},
        ]
        found = with_floors(from_tables({"a": slo(floors=floors), "b": slo()}))
        assert {each.id: each.target for each in found} == {
            "a": 0.99,
            "a/accepted": 0.9,
            "a/quality-0.7": 0.8,
            "a/quality-0.5": 0.95,
            "b": 0.99,
        }
        assert with_floors(()) == ()
