"""The shape lab: makes every latency shape happen, and has it named from the traces alone.

A recipe is settings, a load and the truth (``recipe``, ``recipes/``). A run plays both of its sides
in turn on real engines behind a real application (``stage_set``, ``app``), stores the spans in a
real collector, and asks the function behind ``longpole shapes`` what it sees (``verdict``).
"""
