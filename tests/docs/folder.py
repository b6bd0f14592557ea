"""The folder in which the documentation's commands run: the files that its pages speak of."""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
from tests.docs.pages import DOCS, ROOT, blocks

START_NS = 1_795_989_000_000_000_000
"""In the week of the recorded demo."""

TOML = """
[slo.question-ttft]
metric = "ttft_ms"
threshold = 380
target = 0.95
period = "1d"
where = "route = 'shop.question'"
owner = "shop"

[slo.rag-ttft]
metric = "ttft_ms"
threshold = 2000
target = 0.99
period = "30d"
where = "route = 'rag.search'"

[budget."shop.question"]
prefill-uncached = {{ p95_ms = 600, owner = "platform" }}
e2e = {{ p95_ms = 1500, owner = "shop" }}

[alerts]
allow_hosts = "127.0.0.1"

[alerts.sinks.chat]
kind = "webhook"
url = "{url}"
"""


def fill(folder: Path, url: str) -> None:
    """Put everything there but the data folder, which the first page's import makes."""
    for name in ("sample_data", "tests/analytics/data", "tests/collector/corpus"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "examples" / "ci", folder / "examples" / "ci")
    (folder / "longpole.toml").write_text(TOML.format(url=url))
    rules = next(block.text for block in blocks(DOCS / "compare.md") if block.language == "toml")
    for name in ("routes.toml", "in-force.toml"):
        (folder / name).write_text(rules)
    slow, usual = requests(2.0), requests(1.0)
    for name, side in (("base", usual), ("cand", usual), ("a", usual), ("b", usual)):
        side.write_parquet(folder / f"{name}.parquet")
    usual.write_parquet(folder / "main.parquet")
    slow.write_parquet(folder / "branch.parquet")
    both = pl.concat(
        [usual.with_columns(model=pl.lit("a")), slow.with_columns(model=pl.lit("b"))]
    ).with_columns(request_id=pl.int_range(pl.len()).cast(pl.String))
    both.write_csv(folder / "requests.csv")
    both.write_parquet(folder / "requests.parquet")
    shutil.copy(
        ROOT / "tests" / "analytics" / "data" / "mooncake_synthetic.parquet",
        folder / "arrivals.parquet",
    )


def requests(factor: float, num: int = 150) -> pl.DataFrame:
    """A flat table of requests; ``factor`` times as slow as usual."""
    draw = random.Random(7)
    rows: list[dict[str, Any]] = []
    for number in range(num):
        e2e_ms = factor * draw.lognormvariate(6.5, 0.4)
        is_long = draw.random() < 0.3
        rows.append(
            {
                "request_id": str(number),
                "start_ns": START_NS + number * 10**9,
                "route": "rag.search",
                "e2e_ms": e2e_ms,
                "ttft_ms": e2e_ms / 3,
                "input_tokens": 9000 if is_long else 900,
                "output_tokens": draw.randint(50, 200),
                "language": draw.choice(("de", "en")),
                "request_model": draw.choice(("gpt-5.4", "gpt-5.4-mini")),
                "service_tier": "standard",
                "outcome": "accepted" if draw.random() < 0.9 else "rejected",
                "cost_usd": 0.001,
                "prompt_version": draw.choice(("v1", "v2")),
            }
        )
    return pl.DataFrame(rows)


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Somebody who takes messages: where, and what has come so far."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            got.append(json.loads(self.rfile.read(size)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
