"""What the formats cost in quality: perplexity of one fixed text, each over fp32's."""

from __future__ import annotations

from typing import Final

import torch
from benchmarks.bars import Bar
from benchmarks.engine.bench import Bench

from longpole_engine.config import EngineConfig, KvFormat, Numerics, Weights
from longpole_engine.kv.pool import num_pages
from longpole_engine.runner import Rows, Runner
from longpole_engine.text.tokenizer import Tokenizer

_TEXT: Final = """
A bridge has to carry more than the load that crosses it. It carries its own weight first, and in a
long span that weight is most of what the steel is there for. The wind comes next. A deck that is
too light and too shallow will lift and twist in a steady breeze, and if the twist feeds itself the
motion grows until something breaks. Engineers learned this in 1940, when a new bridge in the state
of Washington shook itself to pieces on a clear November morning. Since then every long bridge is
tried in a wind tunnel before it is built, as a model of a few metres, with the same shape and the
same balance of stiffness and mass.

Heat is slower but no less strong. A steel girder of one kilometre grows by about half a metre
between the coldest night of winter and the hottest day of summer. If both of its ends were held
fast it would buckle, so one end rests on rollers, and the road above has a joint with fingers of
steel that slide between each other. Water finds its way into such joints, and with the water comes
salt. More money is spent on keeping the rust away than on anything else in the life of a bridge.

How long will it last? Nobody writes a date on the drawing, but the rules speak of a hundred years.
In that time the lorries become heavier, the river moves its bed, and the people who knew why a
certain bolt was chosen retire. What remains is the record: every measurement, every repair, every
crack that was found and watched. A good record is worth more than a strong beam, because it tells
the next engineer what the last one did not know. When the Romans built in stone they kept no such
book, and yet some of their arches still stand. They used far more material than they needed, and
they never had to carry a train.

def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)

The function above returns the arithmetic mean of a list of numbers. If the list is empty, it raises
an error, because a division by zero has no answer. To make it safe, check the length first and
return None when there is nothing to average.
"""


def quality(bench: Bench) -> list[Bar]:
    """The text through every format of weights, of keys and values, and through fast prompts."""
    tokens = Tokenizer(bench.model.text.tokenizer_json).encode(_TEXT.strip())
    exact = _perplexity(bench, tokens, Weights.FP32)
    sides: dict[str, float | str] = {"num_tokens": len(tokens), "fp32": exact}
    bars = []
    for name, need, weights, kv_format, numerics in (
        ("bf16 weights", 1.01, Weights.BF16, KvFormat.FP32, Numerics.INVARIANT),
        ("int8 weights", 1.01, Weights.INT8, KvFormat.FP32, Numerics.INVARIANT),
        ("int4 weights", 1.05, Weights.INT4, KvFormat.FP32, Numerics.INVARIANT),
        ("int4, fast prompts", 1.01, Weights.INT4, KvFormat.FP32, Numerics.FAST),
        ("bf16 keys and values", 1.01, Weights.FP32, KvFormat.BF16, Numerics.INVARIANT),
        ("int8 keys and values", 1.01, Weights.FP32, KvFormat.INT8, Numerics.INVARIANT),
    ):
        found = _perplexity(bench, tokens, weights, kv_format, numerics)
        bars.append(Bar(f"{name} / fp32", found / exact, "x", "<=", need, {**sides, name: found}))
    return bars


def _perplexity(
    bench: Bench,
    tokens: list[int],
    weights: Weights,
    kv_format: KvFormat = KvFormat.FP32,
    numerics: Numerics = Numerics.INVARIANT,
) -> float:
    """Of the whole text; ``invariant`` runs it in the decode format, ``fast`` as a prompt."""
    config = EngineConfig(
        weights=weights,
        kv_format=kv_format,
        numerics=numerics,
        max_num_seqs=1,
        is_prefix_cached=False,
        num_threads=bench.threads,
        num_decode_threads=bench.threads,
    )
    runner = Runner(bench.model, config)
    rows = Rows(list(range(num_pages(len(tokens)))), 0, tokens, len(tokens))
    logits = runner.prompt([rows])[:-1].double()
    wanted = torch.tensor(tokens[1:])
    return float(torch.nn.functional.cross_entropy(logits, wanted).exp())
