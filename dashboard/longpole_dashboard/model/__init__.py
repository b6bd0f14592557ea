"""View models: pure functions ``(filters, reader) -> frozen dataclass``, no Streamlit.

Grouping happens in SQL; these functions bind the parameters, name the results and apply the rules
of what may be shown (a percentile needs its samples).
"""
