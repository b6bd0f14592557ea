"""Made-up traffic: workflows with steps and model calls, in times and prompts like real ones.

Times are drawn from log-normal distributions; prompts have keyed hashes as the SDK writes them.
"""

import random

from longpole.prefix import Keyed, chain, joined, texts_of
from longpole.vocab import Stage, keys

from .traces import call, span

KEY = Keyed(b"a tenant's key")
MODEL, SMALL, PROVIDER = "gpt-4o", "gpt-4o-mini", "openai"
SYSTEM = "You are an assistant of a shop. " * 200
TOOLS = [f"tool {name}: " + "does something useful; " * 30 for name in "abcdefgh"]
_DIGEST = {}


def prompt_facts(segments):
    """The attributes that the SDK puts on a call for such segments, in this order."""
    facts, all_texts = {keys.PROMPT_KEY_ID: KEY.key_id}, []
    for name, segment in segments.items():
        texts = texts_of(segment)
        all_texts.extend(texts)
        start = keys.PROMPT_SEGMENT_PREFIX + name
        facts[f"{start}.hash"] = _hashed(texts)
        facts[f"{start}.length"] = str(sum(map(len, texts)))
        if name == "tools":
            facts[f"{start}.set_hash"] = _hashed(sorted(texts))
    found = chain(KEY, joined(all_texts))
    facts[keys.PROMPT_CHAIN] = found.hashes
    facts[keys.PROMPT_NUM_BLOCKS] = str(found.num_blocks)
    facts[keys.PROMPT_BLOCK] = found.unit
    return facts


def _hashed(texts):
    whole = joined(texts)
    if whole not in _DIGEST:
        _DIGEST[whole] = KEY.hex(whole)
    return _DIGEST[whole]


class Traffic:
    """Workflows one after the other; ``spans`` has all that was made."""

    def __init__(self, seed, first=1, every_ms=2_000.0):
        self.random = random.Random(seed)
        self.spans = []
        self.number = first
        self.at_ms = 1_700_000_000_000.0
        self.every_ms = every_ms

    def about(self, middle, sigma=0.25):
        return middle * self.random.lognormvariate(0.0, sigma)

    def workflow(self, route, *, slo_class="interactive", outcome="accepted", **facts):
        self.number += 1
        self.at_ms += self.random.expovariate(1 / self.every_ms)
        return Workflow(self, route, {"slo_class": slo_class, "outcome": outcome, **facts})


class Workflow:
    """One trace; its steps follow each other unless they are told when to begin."""

    def __init__(self, traffic, route, facts):
        self.traffic, self.route, self.facts = traffic, route, facts
        self.trace_id = f"{traffic.number:032x}"
        self.count = 0
        self.begin = self.now = traffic.at_ms
        self.root = self._id()
        self.attributes = {}

    def _id(self):
        self.count += 1
        return f"{self.traffic.number:08x}{self.count:08x}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.now += 0.5
        self.traffic.spans.append(
            span(self.root, None, self.begin, self.now, name=f"invoke_workflow {self.route}",
                 trace_id=self.trace_id, route=self.route, operation="invoke_workflow",
                 attributes=self.attributes, **self.facts)
        )  # fmt: skip

    def step(self, name, ms, stage=Stage.TOOL, *, at=None, parent=None, moves=True, **facts):
        """A step; the clock moves to its end."""
        begin = self.now if at is None else at
        own = self._id()
        self.traffic.spans.append(
            span(own, parent or self.root, begin, begin + ms, name=name, stage=stage,
                 trace_id=self.trace_id, route=self.route, **facts)
        )  # fmt: skip
        if moves:
            self.now = max(self.now, begin + ms)
        return own

    def chat(
        self, *, size=3_000, out=150, cached=0, stream=True, model=MODEL, lead_ms=None, pace_ms=12,
        at=None, parent=None, more_ms=0.0, tpc=1.0, **facts,
    ):  # fmt: skip
        """A model call: 50 ms, 0.2 ms a token that is not cached, then its answer."""
        rnd = self.traffic
        lead = rnd.about(50 + 0.2 * (size - cached), 0.1) if lead_ms is None else lead_ms
        lead += more_ms
        decode = rnd.about(pace_ms, 0.1) * (out - 1)
        begin = self.now if at is None else at
        end = begin + lead + decode
        told = {
            "provider": PROVIDER, "request_model": model, "response_model": model,
            "input_tokens": size, "output_tokens": out, "cached_input_tokens": cached,
            "finish_reason": "stop", "is_streamed": stream,
        }  # fmt: skip
        if stream:
            told |= {
                "ttft_ns": round(lead * 1e6), "last_content_ns": round((lead + decode) * 1e6),
                "tpot_ms": decode / max(out - 1, 1), "num_chunks": max(round(out / tpc), 1),
                "tokens_per_chunk": tpc, "stream_state": "completed",
            }  # fmt: skip
        own = self._id()
        self.traffic.spans.append(
            call(own, parent or self.root, begin, end, name=f"chat {model}",
                 trace_id=self.trace_id, route=self.route, **{**told, **facts})
        )  # fmt: skip
        self.now = max(self.now, end)
        return own
