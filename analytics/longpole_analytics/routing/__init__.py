"""Routes: rules that choose a model for each request, and what they are worth.

- :mod:`~longpole_analytics.routing.policy`: the rules, which always choose the same;
- :mod:`~longpole_analytics.routing.reading`: ``routes.toml``, read and checked;
- :mod:`~longpole_analytics.routing.envelope`: which options no other beats;
- :mod:`~longpole_analytics.routing.tiers`: the tier asked for against the tier received;
- :mod:`~longpole_analytics.routing.whatif`: other rules, on the traffic that was recorded.
"""
