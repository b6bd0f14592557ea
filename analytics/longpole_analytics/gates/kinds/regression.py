"""A quantile must not be worse than a stored baseline."""

from longpole_analytics.gates.base import Data, Finding, Gate, Options
from longpole_analytics.gates.quantiles import Quantile, n_needed, quantile, ratio, stored
from longpole_analytics.wording import milliseconds, quantile_name


def _run(options: Options, data: Data) -> Finding:
    metric, q, where = options["metric"], options["quantile"], options["where"]
    base = stored(data.baseline(options["baseline"]), metric, q, where)
    now = quantile(data.requests(where), metric, q, where)
    found = ratio(now, base)
    most = 1 + options["margin"]
    n = min(now.n, base.n)
    details = {
        "metric": metric,
        "quantile": q,
        "base": base._asdict(),
        "now": now._asdict(),
        "ratio": found.value,
        "ci95": [found.low, found.high],
        "margin": options["margin"],
    }
    name = f"{quantile_name(q)} of {metric}"
    if now.value is None or base.value is None or found.value is None:
        text = f"{name}: too few requests carry it (n = {now.n}, baseline {base.n})"
        return Finding("undecided", text, n, details=details)
    low, high = (("?" if end is None else f"{end:.3g}") for end in (found.low, found.high))
    said = (
        f"{name}: {milliseconds(now.value)} against {milliseconds(base.value)}, "
        f"{found.value:.3g} times ({low} to {high}), at most {most:g}"
    )
    if now.n < options["min_n"]:
        text = f"{said}; {now.n} requests are fewer than {options['min_n']}"
        return Finding("undecided", text, n, n_needed=options["min_n"], details=details)
    if found.low is not None and found.low > most:
        return Finding("fail", said, n, is_certain=True, details=details)
    if found.high is not None and found.high <= most:
        return Finding("pass", said, n, details=details)
    return Finding("undecided", said, n, n_needed=n_needed(found, n, most), details=details)


def wanted(options: Options, data: Data) -> Quantile:
    """The quantile of the data, to be stored as a baseline."""
    where = options["where"]
    return quantile(data.requests(where), options["metric"], options["quantile"], where)


GATE = Gate(
    {
        "metric": "e2e_ms",
        "quantile": 0.95,
        "margin": 0.1,
        "baseline": str,
        "where": None,
        "min_n": 200,
    },
    _run,
)
