"""The watch over a project: what it reads, what it remembers, whom it tells what."""

import time

import pytest

from longpole_analytics.alerts import reading
from longpole_analytics.alerts.book import Ack, Silence
from longpole_analytics.slo.burn import condition, panel
from longpole_analytics.slo.lifecycle import STATUSES, history
from longpole_collector.stores.duckdb import DuckStore

from .harness import FAST, SLOW, START, slo

PAGE = ("firing", "page")
OVER = ("resolved", "page")


def burn(scene, good=2, bad=18, minutes=12):
    scene.fill(60, good=20)
    scene.fill(minutes - 3, good=good, bad=bad, bad_prompt="v42")
    scene.play(3, good=good, bad=bad, bad_prompt="v42")


class TestLife:
    def test_a_fast_burn_pages_once_and_resolves_once(self, scene):
        it = scene()
        burn(it, minutes=14)
        assert it.told == [PAGE]
        it.play(8, good=20)
        assert it.told == [PAGE, OVER]
        assert it.got[0]["fingerprint"] == it.got[1]["fingerprint"]
        assert it.got[0]["id"] == it.got[1]["id"]

    def test_the_event_names_burn_budget_stage_slice_change_and_traces(self, scene):
        it = scene()
        burn(it)
        (event,) = it.got
        assert event["schema"] == "longpole.alert/1"
        assert event["burn"]["rate_long"] > event["burn"]["factor"] == 14.4
        assert event["cause"]["stage"] == "prefill"
        assert event["cause"]["slices"][0]["where"] == {"prompt_version": "v42"}
        assert event["change"]["what"] == "prompt_version v41 -> v42"
        assert event["next_step"]
        assert len(event["links"]["traces"]) == 3
        assert event["summary"].startswith("PAGE search-ttft: burn ")
        assert "prefill +4.9 s, prompt_version=v42" in event["summary"]
        assert len(event["summary"]) <= 140

    def test_what_is_not_known_is_said(self, scene):
        it = scene()
        it.fill(60, good=20)
        it.fill(12, bad=20)  # all of them alike: nothing tells bad from good
        (event,) = it.got
        assert event["cause"]["slices"] == []
        assert event["cause"]["stage"] == "prefill"
        assert "no slice explains it" in event["summary"]

    def test_bad_by_outcome_names_the_slice_and_no_stage(self, scene):
        given = slo(metric="availability")
        del given["threshold"]
        it = scene(a=given)
        it.fill(60, good=20)
        for _ in range(12):
            at = int(it.now_s) // 60 * 60 * 10**9
            rows = [{"start_ns": at, "is_bad": False, "route": "search"} for _ in range(30)]
            failed = {"outcome": "failed", "prompt_version": "v42"}
            it.store.add_rows([*rows, *(row | failed for row in rows)])
            it.now_s += 60
        it.look()
        (event,) = it.got
        assert event["cause"]["stage"] is None
        assert event["cause"]["slices"][0]["where"] == {"prompt_version": "v42"}
        assert "bad by outcome" in event["cause"]["unknown"]

    def test_a_restart_at_every_minute_gives_the_same_alerts_and_tells_nobody_twice(self, scene):
        plain, restarted = scene(), scene()
        for it, often in ((plain, False), (restarted, True)):
            for minutes, good, bad in ((4, 9, 0), (4, 1, 8), (6, 9, 0), (3, 0, 9), (7, 9, 0)):
                for _ in range(minutes):
                    it.play(1, good=good, bad=bad)
                    it.states = [*getattr(it, "states", []), it.status["search-ttft"]]
                    if often:
                        it.open()
        assert restarted.states == plain.states
        assert set(plain.states) == {"inactive", "firing"}
        assert restarted.told == plain.told

    def test_states_are_those_of_the_plain_evaluation_of_the_same_minutes(self, scene):
        it = scene(a=slo(rules=[FAST | {"for": "2m", "keep": "10m"}]))
        states = []
        for minutes, good, bad in ((3, 10, 0), (6, 0, 10), (6, 10, 0), (6, 0, 10), (17, 10, 0)):
            for _ in range(minutes):
                it.play(1, good=good, bad=bad)
                states.append(it.status["a"])
        objective = it.settings.objectives[0]
        minutes = panel([objective], [it.watch._rings.series(0, START + 37)])
        found = condition(minutes, 0, objective.rules[0], START, START + 37)
        assert states == [STATUSES[code] for code in history(found, objective.rules[0]).codes]
        assert "pending" in states

    def test_who_was_told_is_told_again_after_a_while_not_before(self, scene):
        it = scene(repeat_s=300.0)
        burn(it)
        it.play(10, good=2, bad=18)
        times = [event["updated_at"] for event in it.got]
        assert len(times) == len(set(times)) == 3
        assert it.told == [PAGE] * 3

    def test_a_page_keeps_its_ticket_quiet(self, scene):
        it = scene(a=slo(rules=[FAST, SLOW]))
        it.fill(60, good=20)
        it.play(13, bad=20)
        assert ("firing", "page") in it.told
        assert sum(each == PAGE for each in it.told) == 1
        first_page = it.told.index(PAGE)
        assert ("firing", "ticket") not in it.told[first_page:]

    def test_objectives_do_not_share_an_alert(self, scene):
        it = scene(a=slo(), b=slo(where="route = 'chat'"), c=slo(where=None))
        it.fill(60, good=20)
        for _ in range(12):
            it.store.add(int(it.now_s) // 60, bad=20, route="search")
            it.play(1, good=20, route="chat")
        assert {event["slo"]["id"] for event in it.got} == {"a", "c"}
        assert len({event["fingerprint"] for event in it.got}) == 2


class TestPeople:
    def test_a_silence_tells_nobody_until_it_ends(self, scene):
        it = scene()
        ledger = it.ledger()
        ledger.silence(Silence("search-ttft", "", it.now_s + 80 * 60), "deploy")
        ledger.close()
        burn(it, minutes=19)
        assert it.told == []
        it.play(3, good=2, bad=18)
        assert it.told == [PAGE]

    def test_a_silence_of_another_objective_or_severity_does_not_count(self, scene):
        it = scene()
        ledger = it.ledger()
        ledger.silence(Silence("other", "", it.now_s + 9e6), "")
        ledger.silence(Silence("", "ticket", it.now_s + 9e6), "")
        ledger.close()
        burn(it)
        assert it.told == [PAGE]

    def test_what_was_told_before_a_silence_is_told_to_be_over(self, scene):
        it = scene()
        burn(it)
        ledger = it.ledger()
        ledger.silence(Silence("", "", it.now_s + 9e6), "")
        ledger.close()
        it.play(8, good=20)
        assert it.told == [PAGE, OVER]

    def test_who_takes_an_alert_on_hears_no_more_of_it_until_then(self, scene):
        it = scene(repeat_s=600.0)
        burn(it)
        ledger = it.ledger()
        (name,) = ledger.entries()
        ledger.ack(name, Ack(it.now_s, it.now_s + 600))
        ledger.close()
        it.play(8, good=2, bad=18)
        assert it.told[:2] == [PAGE, ("ack", "page")]
        assert len(it.told) == 2
        it.play(3, good=2, bad=18)
        assert it.told[2] == PAGE


class TestSilenceOfData:
    def test_requests_that_stop_do_not_resolve_an_alert_at_once(self, scene):
        it = scene()
        burn(it)
        it.play(7)
        assert it.told == [PAGE]
        assert it.status == {"search-ttft": "no_data"}
        it.fill(60)
        assert it.told == [PAGE, OVER]
        assert "no events in 1h" in it.got[1]["summary"]

    def test_a_store_out_of_reach_resolves_nothing_and_is_told(self, scene):
        it = scene()
        burn(it)
        it.store.is_down = True
        for _ in range(10):
            it.look(it.now_s + 60)
        assert it.told == [PAGE, ("firing", "ticket")]
        assert it.got[1]["slo"]["id"] == "longpole-evaluation"
        assert "not looked at" in it.got[1]["summary"] or "no objective" in it.got[1]["summary"]
        assert "longpole_alerts_last_eval_age_seconds 6" in it.watch.prometheus()
        it.store.is_down = False
        it.play(1, good=0, bad=20)
        assert it.told[2:] == [("resolved", "ticket")]

    def test_an_objective_never_fires_without_requests(self, scene):
        it = scene()
        it.play(5)
        assert it.status == {"search-ttft": "no_data"}
        assert it.told == []


class TestNoise:
    def test_one_error_on_a_quiet_service_pages_nobody(self, scene):
        it = scene(a=slo(rules=[]), b=slo(rules=[], period="30d"))
        it.play(1, bad=1)
        it.play(9)
        assert it.told == []

    def test_a_slow_service_that_is_mostly_bad_is_told_of(self, scene):
        it = scene(a=slo(rules=[], period="30d"))
        for minute in range(120):
            if minute % 2 == 0:
                it.store.add(int(it.now_s) // 60, bad=0 if minute % 20 == 0 else 1)
            it.now_s += 60
        it.look()
        assert PAGE in it.told


class TestReading:
    def test_only_what_changed_is_read(self, scene):
        it = scene()
        it.fill(30, good=5)
        it.store.asked.clear()
        it.look(it.now_s + 1)
        assert [q for q, _ in it.store.asked if "FROM calls" in q] == []
        it.store.asked.clear()
        it.play(1, good=5)
        (window,) = [given for query, given in it.store.asked if "* FROM traces" in query]
        assert window[1] - window[0] <= 6 * 60 * 10**9

    def test_late_requests_count_in_their_own_minute(self, scene):
        it = scene()
        it.fill(60, good=20)
        assert it.told == []
        for minute in range(1, 13):
            it.store.add(int(it.now_s) // 60 - minute, bad=40)
        it.look(it.now_s + 5)
        assert it.told == [PAGE]
        assert it.watch._standings["search-ttft"].num_bad == 12 * 40

    def test_a_store_that_gives_few_rows_at_once_is_read_whole(self, scene, monkeypatch):
        monkeypatch.setattr(reading, "PAGE_ROWS", 7)
        it = scene(a=slo(where="prefill_ms > 0 AND later_decode_ms > 0"))
        it.fill(3, good=9, bad=2)
        found = it.watch._standings["a"]
        assert (found.bad, found.total) == (6, 33)

    def test_history_is_read_when_an_objective_is_new(self, scene):
        it = scene()
        for minute in range(START - 300, START):
            it.store.add(minute, good=2)
        it.look()
        assert it.watch._standings["search-ttft"].total == 600

    def test_a_condition_that_cannot_be_asked_stops_only_its_objective(self, scene):
        it = scene(a=slo(where="no_such = 1"), b=slo())
        burn(it)
        assert [event["slo"]["id"] for event in it.got] == ["b"]
        assert 'longpole_slo_broken{slo="a"} 1' in it.watch.prometheus()


class TestClock:
    def test_a_clock_that_jumps_an_hour_ahead_and_back_keeps_the_alert(self, scene):
        it = scene()
        burn(it)
        here = it.now_s
        it.watch.clock_was_set()
        it.look(here + 3600)
        it.watch.clock_was_set()
        it.look(here)
        assert it.told == [PAGE]
        it.fill(12, bad=20)
        assert it.status == {"search-ttft": "firing"}
        assert it.told == [PAGE]
        it.fill(60, good=20)
        assert it.told == [PAGE]
        it.watch._trusted_from = 0.0
        it.look(it.now_s + 5)
        assert it.told == [PAGE, OVER]

    def test_a_clock_set_back_an_hour_is_watched_on(self, scene):
        it = scene()
        it.fill(90, good=20)
        it.now_s -= 3600
        it.fill(12, bad=40)
        assert it.told == [PAGE]

    def test_a_clock_that_was_years_ahead_blinds_nobody(self, scene):
        it = scene()
        it.look(it.now_s + 3e8)
        it.now_s -= 3e8
        burn(it)
        assert it.told == [PAGE]

    @pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
    def test_a_week_in_which_the_clocks_change_is_like_any_other(self, scene, monkeypatch, day):
        from datetime import UTC, datetime

        monkeypatch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        try:
            it = scene(a=slo(period="7d"))
            it.now_s = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
            for hour in range(-20, 0):
                it.store.add(int(it.now_s) // 60 + 60 * hour, good=2)
            it.fill(60, good=2)
            it.fill(12, bad=20)
        finally:
            monkeypatch.undo()
            time.tzset()
        assert it.told == [PAGE]
        assert it.watch._standings["a"].total == 20 * 2 + 120 + 240
        assert it.got[0]["started_at"].startswith(f"{day}T01:")


def test_the_made_store_has_the_columns_of_the_real_one(scene):
    store = DuckStore()
    assert (
        scene().store.sql("SELECT * FROM traces").schema.names
        == store.sql("SELECT * FROM traces").schema.names
    )
    store.close()
