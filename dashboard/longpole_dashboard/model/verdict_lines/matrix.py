"""On top of Matrix: the cells that none beats."""

from longpole_dashboard.model import text
from longpole_dashboard.model.matrix import MatrixView, label
from longpole_dashboard.model.verdict_lines.base import Line, name
from longpole_engine.load.matrix import LATENCIES, Point


def of_matrix(view: MatrixView, latency: str) -> Line:
    """Which cells none beats, of the work that most cells do: the fastest, and that of most tokens.

    Args:
        view: of a matrix.
        latency: a key of ``LATENCIES``.
    """
    title, works = LATENCIES[latency], view.works[latency]
    if not works:
        return Line(f"No verdict: no cell tells its {title} and its tokens a second.")
    panel = max(works, key=lambda each: len(each.points))
    best = sorted((p for p in panel.points if p.is_best), key=lambda point: point.latency_ms)
    work = f"{panel.input_tokens:,} tokens in, {panel.output_tokens:,} out, {name(panel.language)}"
    more = f"{text.counted(len(works) - 1, 'other work')} below." if len(works) > 1 else ""
    if len(panel.points) == 1:
        line = f"{work}: one cell, nothing to compare: {_cell(best[0], title)}."
    elif len({(p.latency_ms, p.tokens_per_s) for p in best}) == 1:
        line = f"{work}: no cell beats {_cell(best[0], title)}."
    else:
        line = (
            f"{work}: least {title} by {_cell(best[0], title)}; most tokens by "
            f"{_cell(best[-1], title)}."
        )
    return Line(line, (more,) if more else ())


def _cell(point: Point, title: str) -> str:
    result = point.row["result"]
    n = f"n {text.count(result.get('num_completed', 0))}"
    failed = sum(result.get("failures", {}).values())
    told = [f"{title} {text.duration(point.latency_ms)}", f"{point.tokens_per_s:,.1f} tokens/s", n]
    told += [f"{failed:,} failed"] if failed else []
    return f"{name(label(point.row))} ({', '.join(told)})"
