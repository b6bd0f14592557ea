"""What caches are worth: of prompts (a provider's or an engine's) and of whole answers.

- :mod:`~longpole_analytics.cache.economics`: when a write pays, in closed form;
- :mod:`~longpole_analytics.cache.hits`: hit rates, money really saved, writes nobody read;
- :mod:`~longpole_analytics.cache.speed`: time to first token really saved, by two methods;
- :mod:`~longpole_analytics.cache.replay`: what an ideal cache would have hit;
- :mod:`~longpole_analytics.cache.misses`: why each miss missed, and the edit that would help;
- :mod:`~longpole_analytics.cache.hot`: keys asked for more often than a provider advises;
- :mod:`~longpole_analytics.cache.lookups`: caches of answers, their stale hits.
"""
