"""The sinks against servers that speak their protocols, restarts in between, and bad ones."""

import email
import email.policy
import hashlib
import hmac
import logging
import socket

import pytest

from longpole.errors import UsageError
from longpole_analytics.alerts import net
from longpole_analytics.alerts.book import Ack
from longpole_analytics.alerts.net import Gate, Later, Never
from longpole_analytics.alerts.sinks.base import make_sinks

from .fakes import PagerDuty, mailing, serving, silent, slack, webhook
from .harness import slo

HOSTILE = "<!channel> <img src=x onerror=alert(1)> \x1b[31m=cmd()\r\nBcc: x@y.z `*_"


def sink(kind, **options):
    (made,) = make_sinks({"it": {"kind": kind} | options})
    return made


def burn(it, minutes=12):
    it.fill(60, good=20)
    it.fill(minutes, good=2, bad=18, bad_prompt="v42")


def live(it):
    """Fire, restart, acknowledge, restart, resolve."""
    burn(it)
    it.open()
    it.look(it.now_s + 5)
    ledger = it.ledger()
    (name,) = ledger.entries()
    ledger.ack(name, Ack(it.now_s, it.now_s + 3600))
    ledger.close()
    it.look(it.now_s + 5)
    it.open()
    it.fill(10, good=20)
    return name


class TestProtocols:
    def test_a_webhook_gets_the_event_signed(self, scene):
        with serving(webhook) as (url, got):
            it = scene(sinks=[sink("webhook", url=url, secret="s3cret")])
            live(it)
        assert [each.json["status"] for each in got] == ["firing", "ack", "resolved"]
        assert [each.json for each in got] == it.got
        for each in got:
            told = each.headers["x-longpole-timestamp"].encode() + b"." + each.body
            made = hmac.new(b"s3cret", told, hashlib.sha256).hexdigest()
            assert each.headers["x-longpole-signature"] == f"sha256={made}"

    def test_pagerduty_has_one_incident_that_ends(self, scene):
        fake = PagerDuty()
        with serving(fake) as (url, got):
            name = live(scene(sinks=[sink("pagerduty", routing_key="R" * 32, url=url)]))
        assert fake.incidents == {name: "resolved"}
        assert [action for action, _ in fake.log] == ["trigger", "acknowledge", "resolve"]
        assert got[0].json["payload"]["severity"] == "critical"
        assert got[0].json["payload"]["custom_details"]["stage"].startswith("prefill")

    def test_slack_takes_the_message(self, scene):
        with serving(slack) as (url, got):
            live(scene(sinks=[sink("slack", url=f"{url}/services/T0/B0/secret")]))
        assert len(got) == 3
        assert got[0].json["text"].startswith("PAGE search-ttft: burn ")

    def test_mail_comes_as_one_thread_in_text_and_html(self, scene):
        with mailing() as (port, mails):
            options = {"from": "longpole@example.com", "to": "a@example.com, b@example.com"}
            live(scene(sinks=[sink("email", host="127.0.0.1", port=port, **options)]))
        found = [email.message_from_bytes(each, policy=email.policy.default) for each in mails]
        assert len(found) == 3
        assert len({each["References"] for each in found}) == 1
        assert len({each["Message-ID"] for each in found}) == 3
        assert [part.get_content_type() for part in found[0].iter_parts()] == [
            "text/plain",
            "text/html",
        ]
        assert found[0]["Subject"].startswith("PAGE search-ttft")

    def test_only_the_severities_asked_for_are_sent(self, scene):
        with serving(webhook) as (url, got):
            it = scene(sinks=[sink("webhook", url=url, severities=["ticket"])])
            burn(it)
        assert it.told == [("firing", "page")]
        assert got == []


class TestHostileNames:
    def scene_with(self, scene, made):
        it = scene(sinks=[made], a=slo(owner=HOSTILE.replace("\r\n", " ")))
        it.fill(60, good=20, prompt="v41")
        it.fill(12, good=2, bad=18, bad_prompt=HOSTILE)
        assert it.got[0]["cause"]["slices"]
        return it

    def test_no_control_character_is_in_the_event(self, scene):
        with serving(webhook) as (url, got):
            self.scene_with(scene, sink("webhook", url=url))
        assert not any(ord(char) < 32 for char in str(got[0].json))

    def test_slack_reads_names_as_text(self, scene):
        with serving(slack) as (url, got):
            self.scene_with(scene, sink("slack", url=url))
        (message,) = [each.json for each in got]
        assert "<" not in message["text"]
        assert "mrkdwn" not in str(message)

    def test_mail_has_no_header_and_no_element_of_theirs(self, scene):
        with mailing() as (port, mails):
            made = sink("email", host="127.0.0.1", port=port, **{"from": "a@b.c", "to": "d@e.f"})
            self.scene_with(scene, made)
        (mail,) = [email.message_from_bytes(each, policy=email.policy.default) for each in mails]
        assert mail["Bcc"] is None
        html = mail.get_body(("html",)).get_content()
        assert "<img" not in html
        assert "&lt;img" in html

    def test_pagerduty_takes_them(self, scene):
        fake = PagerDuty()
        with serving(fake) as (url, got):
            self.scene_with(scene, sink("pagerduty", routing_key="R" * 32, url=url))
        assert "\x1b" not in str(got[0].json)
        assert "triggered" in fake.incidents.values()


class TestDelivery:
    def test_a_sink_that_fails_gets_the_alert_when_it_is_well_again(self, scene):
        answers = [500, 503, 500, 200]
        with serving(lambda _: (answers.pop(0), {}, b"")) as (url, got):
            it = scene(sinks=[sink("webhook", url=url)])
            burn(it)
            began = it.now_s
            waits = []
            while answers:
                it.open()  # a restart loses nothing
                it.look(it.now_s + 0.5)
                waits.append((it.now_s - began, len(got)))
        assert [next(at for at, num in waits if num == n) for n in (2, 3, 4)] == [1, 3, 7]
        assert len({each.json["id"] for each in got}) == 1

    def test_five_tries_then_a_long_pause(self, scene):
        with serving(lambda _: (500, {}, b"")) as (url, got):
            it = scene(sinks=[sink("webhook", url=url)])
            burn(it)
            began = it.now_s
            for second in range(0, 120, 2):
                it.now_s = began + second
                it.watch.deliver(it.now_s)
            assert len(got) == 5
            it.watch.deliver(began + 600)
            assert len(got) == 6

    def test_retry_after_is_obeyed(self, scene):
        answers = [(429, {"retry-after": "40"}, b""), (204, {}, b"")]
        with serving(lambda _: answers.pop(0)) as (url, got):
            it = scene(sinks=[sink("webhook", url=url)])
            burn(it)
            it.watch.deliver(it.now_s + 39)
            assert len(got) == 1
            it.watch.deliver(it.now_s + 40)
        assert len(got) == 2

    @pytest.mark.parametrize(("headers", "most"), [({}, 60), ({"retry-after": "300"}, 13)])
    def test_one_that_is_too_busy_for_an_hour_is_left_alone_and_gets_it_then(
        self, scene, headers, most
    ):
        until_s = float("inf")

        def busy(_):
            return (429, headers, b"") if it.now_s < until_s else (204, {}, b"")

        with serving(busy) as (url, got):
            it = scene(sinks=[sink("webhook", url=url)])
            burn(it)
            until_s = it.now_s + 3600
            while it.now_s < until_s + 700:
                it.now_s += 5
                it.watch.deliver(it.now_s)
        assert 5 <= len(got) <= most
        assert [d["state"] for d in it.ledger_rows() if d["sink"] == "it"] == ["sent"]

    @pytest.mark.parametrize("status", [400, 401, 404, 302])
    def test_what_is_refused_for_good_is_not_tried_again(self, scene, status):
        headers = {"location": "http://169.254.169.254/latest"} if status == 302 else {}
        with serving(lambda _: (status, headers, b"")) as (url, got):
            it = scene(sinks=[sink("webhook", url=url)])
            burn(it)
            it.watch.deliver(it.now_s + 9999)
        assert len(got) == 1
        assert it.told == [("firing", "page")]  # the other sink has it

    def test_a_sink_that_hangs_holds_up_no_other(self, scene, monkeypatch):
        monkeypatch.setattr(net, "TIMEOUT_S", 0.2)
        with silent() as url:
            it = scene(sinks=[sink("webhook", url=url)])
            burn(it)
            assert it.told == [("firing", "page")]
            (row,) = [d for d in it.ledger_rows() if d["sink"] == "it"]
        assert row["state"] == "waiting"
        assert "127.0.0.1" in row["error"]

    def test_a_fault_of_a_sink_loses_nothing(self, scene):
        it = scene()
        it.fault = RuntimeError("a secret")
        burn(it)
        assert it.told == []
        it.fault = None
        it.look(it.now_s + 2)
        assert it.told == [("firing", "page")]
        assert "secret" not in str(it.ledger_rows())

    def test_mail_refused_for_good_and_for_now(self, scene):
        options = {"host": "127.0.0.1", "from": "a@b.c", "to": "d@e.f"}
        for answer, state in (("550 no such", "failed"), ("451 later", "waiting")):
            with mailing(refuse=[answer]) as (port, _):
                it = scene(sinks=[sink("email", port=port, **options)])
                burn(it)
            assert [d["state"] for d in it.ledger_rows() if d["sink"] == "it"] == [state]


class TestGate:
    @pytest.mark.parametrize(
        "host",
        [
            *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0"),
            *("[::1]", "[fe80::1]", "[fd00::1]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]"),
            *("100.64.0.1", "224.0.0.1", "localhost", "2130706433", "0x7f.1"),
        ],
    )
    def test_private_places_are_refused(self, host):
        with pytest.raises(Never, match="private"):
            Gate().post(f"http://{host}:1/x", b"", {})

    @pytest.mark.parametrize("allowed", ["127.0.0.1", "127.0.0.0/8", "localhost"])
    def test_those_listed_are_not(self, allowed):
        with serving(webhook) as (url, got):
            host = "localhost" if allowed == "localhost" else "127.0.0.1"
            Gate([allowed]).post(url.replace("127.0.0.1", host), b"x", {})
        assert len(got) == 1

    def test_public_addresses_are_fine(self, monkeypatch):
        found = [(socket.AF_INET, 1, 6, "", ("93.184.216.34", 443))]
        monkeypatch.setattr(net.socket, "getaddrinfo", lambda *_, **__: found)
        assert Gate().resolve("hooks.example.com", 443) == "93.184.216.34"

    def test_one_private_address_among_public_ones_is_refused(self, monkeypatch):
        found = [(socket.AF_INET, 1, 6, "", (each, 1)) for each in ("93.184.216.34", "10.0.0.1")]
        monkeypatch.setattr(net.socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(Never):
            Gate().resolve("hooks.example.com", 1)

    def test_the_address_connected_to_is_the_one_that_was_checked(self, monkeypatch):
        real, asked = socket.getaddrinfo, []

        def once(host, port, *given, **how):
            asked.append(host)
            if host == "sink.example":
                return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port, *given, **how)
            return real(host, port, *given, **how)

        monkeypatch.setattr(net.socket, "getaddrinfo", once)
        with serving(webhook) as (url, got):
            port = url.rpartition(":")[2]
            Gate(["sink.example"]).post(f"http://sink.example:{port}/", b"x", {})
        assert asked.count("sink.example") == 1
        assert got[0].headers["host"] == f"sink.example:{port}"

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/x", "http:///x"])
    def test_other_schemes_are_refused(self, url):
        with pytest.raises(Never):
            Gate().post(url, b"", {})

    def test_an_unknown_name_may_be_known_later(self):
        with pytest.raises(Later):
            Gate().post("http://no-such-name.invalid/x", b"", {})

    def test_proxies_of_the_environment_are_not_asked(self, monkeypatch):
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        with serving(webhook) as (url, got):
            Gate(["127.0.0.1"]).post(url, b"x", {})
        assert len(got) == 1


class TestSettings:
    @pytest.mark.parametrize(
        ("table", "said"),
        [
            ({"kind": "telegraph"}, "one of alertmanager"),
            ({"kind": "slack"}, "no url"),
            ({"kind": "slack", "url": "hooks.slack.com"}, "http"),
            ({"kind": "webhook", "url": "http://x", "sercet": "y"}, "did you mean 'secret'"),
            ({"kind": "webhook", "url": "http://x", "severities": ["all"]}, "severities"),
            ({"kind": "webhook", "url": 5}, "expected a str"),
            ({"kind": "email", "host": "h", "from": "nobody", "to": "a@b.c"}, "addresses"),
        ],
    )
    def test_what_cannot_be_is_refused(self, table, said):
        with pytest.raises(UsageError, match=said):
            make_sinks({"it": table})

    def test_no_secret_is_shown_or_logged(self, scene, caplog):
        caplog.set_level(logging.DEBUG)
        answers = [(500, {}, b""), (404, {}, b"")]
        with serving(lambda _: answers.pop(0)) as (url, _):
            made = sink("webhook", url=f"{url}/hidden-path", secret="hidden-key")
            it = scene(sinks=[made])
            burn(it)
            it.look(it.now_s + 5)
        assert "hidden" not in repr(made) + str(it.ledger_rows()) + it.watch.prometheus()
        assert "hidden" not in caplog.text
