"""Objectives, the minutes they are judged by, and how fast their error budgets burn.

``objectives`` (``longpole.toml``) and ``openslo`` (YAML) say what is promised, ``series`` counts
good and bad requests by the minute, ``burn`` compares windows of minutes with the budget,
``lifecycle`` turns that into alerts that survive a restart, ``check`` says where all stand.
"""
