"""A candidate against a baseline: faster, for the same work, at the same quality and cost?

- :mod:`~longpole_analytics.scorecard.card`: the scorecard and its verdict;
- :mod:`~longpole_analytics.scorecard.sides`: what counts as failed, censored, known;
- :mod:`~longpole_analytics.scorecard.survival`: quantiles of times that were not seen to end;
- :mod:`~longpole_analytics.scorecard.resample`: the bootstrap by clusters, compiled;
- :mod:`~longpole_analytics.scorecard.interval`: an interval from resamples;
- :mod:`~longpole_analytics.scorecard.compared`: quantiles, rates and means with intervals;
- :mod:`~longpole_analytics.scorecard.mix`: both sides weighted to a common mix, equal lengths;
- :mod:`~longpole_analytics.scorecard.guardrails`: what must not get worse;
- :mod:`~longpole_analytics.scorecard.shift`: the shift of pairs;
- :mod:`~longpole_analytics.scorecard.render`: the card as text, Markdown and HTML.
"""
