"""Gates: what must hold before a change goes out, or stays out.

- :mod:`~longpole_analytics.gates.base`: what a check is and what it finds;
- :mod:`~longpole_analytics.gates.kinds`: one kind of check a file;
- :mod:`~longpole_analytics.gates.config`: checks as they are written down;
- :mod:`~longpole_analytics.gates.data`: what they read;
- :mod:`~longpole_analytics.gates.quantiles`: a quantile against one that was stored;
- :mod:`~longpole_analytics.gates.rollback`: when a failure is sure enough to undo a change;
- :mod:`~longpole_analytics.gates.junit`: the findings as JUnit XML.
"""
