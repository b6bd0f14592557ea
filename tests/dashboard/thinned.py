"""Workflows of which a known sample is kept, each with what it stands for."""

import random
from collections.abc import Sequence

import pyarrow as pa

from longpole.vocab import Span
from longpole_collector.stores.sampled import Sampled
from longpole_collector.stores.schema import trace_numbers
from longpole_dashboard.model.window import SECOND_NS

from .conftest import MemoryStore
from .sample import T0, workflow

SLOW_MS = 300.0
"""What takes longer to the first token is all kept."""


def every(num: int, seed: int = 5) -> list[list[Span]]:
    """Workflows a second apart on two prompt versions; a third of the newer one's are rejected."""
    draw = random.Random(seed)
    return [
        workflow(
            i + 1,
            at_s=i,
            ttft_ms=draw.lognormvariate(5, 0.6) * (1 + i % 2),
            stages={"tool": draw.uniform(20, 80)},
            prompt_version=f"v{1 + i % 2}",
            outcome="rejected" if i % 2 and draw.random() < 0.33 else "accepted",
        )
        for i in range(num)
    ]


def weights(workflows: Sequence[list[Span]], share: float, seed: int = 6) -> list[float | None]:
    """What each stands for if slow ones are kept and of others a share; ``None`` is dropped."""
    draw = random.Random(seed)
    return [
        1.0 if (spans[1].ttft_ns or 0) > SLOW_MS * 1e6
        else 1 / share if draw.random() < share else None
        for spans in workflows
    ]  # fmt: skip


def sent(workflows: Sequence[list[Span]], drawn: Sequence[float | None]) -> list[Span]:
    """What a sender that samples sends, each span with what it stands for."""
    return [
        span._replace(weight=weight)
        for spans, weight in zip(workflows, drawn, strict=True)
        if weight is not None
        for span in spans
    ]


def take_out(
    store: MemoryStore, workflows: Sequence[list[Span]], drawn: Sequence[float | None]
) -> None:
    """Do to a store that has all workflows what a collector does that samples them."""
    ids = [spans[0].trace_id for spans in workflows]
    kept = [(each, w) for each, w in zip(ids, drawn, strict=True) if w is not None]
    gone = trace_numbers([each for each, w in zip(ids, drawn, strict=True) if w is None])
    table = trace_numbers([each for each, _ in kept])
    table = table.append_column("weight", pa.array([weight for _, weight in kept]))
    between = (T0, T0 + (len(workflows) + 60) * SECOND_NS)
    Sampled(store, ()).apply(table, gone, trace_numbers([]), between)
