"""The demo: a real model answers a real workload, and one planted fault is found.

``agent`` is the application as a user would write it, ``workload`` says when its requests come,
``finding`` asks the analytics what went wrong, ``run`` starts and stops everything.
"""
