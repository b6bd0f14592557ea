"""A test alert, marked as one, and its end: to see that a sink arrives where it should."""

from longpole.errors import LongpoleError, UsageError
from longpole_analytics.alerts.event import MAX_LINE, Cause, Event, Status, make_event
from longpole_analytics.alerts.net import Gate, Later, Never
from longpole_analytics.alerts.settings import AlertSettings
from longpole_analytics.alerts.sinks.base import Post
from longpole_analytics.slo.burn import Budget
from longpole_analytics.slo.check import RuleStatus, Standing
from longpole_analytics.slo.objectives import Objective, default_rules

_PERIOD_MIN = 30 * 1440


def trial(dashboard: str, now_ns: int) -> tuple[Event, Event]:
    """The two events, of an objective that is called ``test``."""
    rules = default_rules(_PERIOD_MIN)
    objective = Objective(
        "test", "ttft_ms", 0.99, 2000.0, _PERIOD_MIN, rules=rules, description="a test, no alert"
    )
    states = tuple(RuleStatus(rule, rule.factor, 20.0, 25.0, "firing") for rule in rules)
    standing = Standing(
        objective, "firing", 20.0, 100.0, 20, 0, Budget(0.8, None, "a test", 20.0), states, ()
    )
    cause = Cause(unknown="this is a test", next_step="nothing: this is a test")

    def told(status: Status) -> Event:
        event = make_event(
            "test",
            standing,
            "ticket",
            status,
            cause,
            started_ns=now_ns,
            now_ns=now_ns,
            dashboard=dashboard,
        )
        return event | {"summary": f"TEST {event['summary']}"[:MAX_LINE]}

    return told("firing"), told("resolved")


def send_trial(settings: AlertSettings, sink: str, now_s: float) -> None:
    """Send both events to a sink; returns when they have arrived.

    Raises:
        UsageError: there is no such sink.
        LongpoleError: the sink did not take them.
    """
    chosen = next((each for each in settings.sinks if each.name == sink), None)
    if chosen is None:
        names = ", ".join(each.name for each in settings.sinks) or "none"
        raise UsageError(f"no sink '{sink}' in [alerts.sinks]; there are: {names}")
    for event in trial(settings.dashboard, int(now_s * 1e9)):
        try:
            chosen.kind.send(
                Post(event, is_refresh=False, now_s=now_s),
                chosen.options,
                Gate(settings.allow_hosts),
            )
        except (Later, Never) as error:
            raise LongpoleError(f"sink '{sink}' did not take the test: {error}") from error
