"""What the collector finds under ``longpole.watcher``: alerts, where objectives are written.

Light to import, as every collector imports it.
"""

from longpole_analytics.alerts.settings import load_alerts
from longpole_collector.watching import Begin, Seat, Watch, Watcher


def _configure() -> Begin | None:
    settings = load_alerts()
    if settings is None:
        return None
    from longpole_analytics.alerts.watch import AlertWatch

    def begin(seat: Seat) -> Watch | None:
        return AlertWatch(seat, settings) if seat.project in settings.projects else None

    return begin


WATCHER = Watcher(_configure)
