"""Alerts: objectives watched while the collector runs, and who is told when one burns.

``watch`` is the plug-in that the collector starts: every few seconds it reads the minutes that
changed (``reading``), keeps their counts (``rings``), asks :mod:`longpole_analytics.slo` where the
objectives stand, and decides who is to be told what (``book``). What is to be sent is written
down first (``ledger``), then sent (``courier``) by the sinks, one file each in ``sinks``.
"""
