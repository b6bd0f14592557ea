"""What the collector finds under ``longpole.watcher``: the weekly report, where it is scheduled.

Light to import, as every collector imports it.
"""

from longpole_analytics.report.settings import load_report
from longpole_collector.watching import Begin, Seat, Watch, Watcher


def _configure() -> Begin | None:
    settings = load_report()
    if settings is None:
        return None
    from longpole_analytics.report.watch import ReportWatch

    def begin(seat: Seat) -> Watch | None:
        return ReportWatch(seat, settings) if seat.project in settings.projects else None

    return begin


WATCHER = Watcher(_configure)
