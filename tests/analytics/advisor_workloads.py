"""Made-up traffic for the advisor: clean workloads, and one planted fault of each kind.

Every fault is mixed with clean traffic of other routes.
"""

import random

from longpole.vocab import Stage, keys

from .advisor_traffic import SYSTEM, TOOLS, Traffic, prompt_facts


def _prompt(n, *, system=SYSTEM, question_length=300):
    question = f"question {n} " * (question_length // 12)
    return prompt_facts({"tools": TOOLS, "system": system, "messages": question})


# --- clean workloads ---------------------------------------------------------------------------
def chat(traffic, num, route="chat"):
    """A chat: one streamed call with a stable prefix that is cached."""
    rnd = traffic.random
    for _ in range(num):
        outcome = "accepted" if rnd.random() < 0.9 else "rejected"
        with traffic.workflow(route, outcome=outcome) as run:
            run.now += traffic.about(3)
            run.chat(
                size=int(traffic.about(3_000, 0.05)), cached=rnd.choice((2_432, 2_560)),
                out=int(traffic.about(180, 0.5)) + 5, prompt_version="v1",
                attributes=_prompt(traffic.number),
            )  # fmt: skip


def rag(traffic, num, route="rag"):
    """Search, rerank, answer, validate; passages stand at the end of the prompt."""
    rnd = traffic.random
    for _ in range(num):
        with traffic.workflow(route) as run:
            run.step("retrieval docs", traffic.about(60, 0.5), Stage.RETRIEVAL)
            run.step("rerank passages", traffic.about(30, 0.4), Stage.RETRIEVAL)
            passages = f"passage {traffic.number} " * int(traffic.about(120, 0.1))
            facts = prompt_facts({
                "system": SYSTEM, "reference": passages, "messages": f"q {traffic.number}",
            })  # fmt: skip
            run.chat(
                size=int(traffic.about(2_600, 0.1)), cached=rnd.choice((1_408, 1_536)),
                out=int(traffic.about(160, 0.4)) + 5, prompt_version="v1", attributes=facts,
            )  # fmt: skip
            run.step("validation grounded", traffic.about(8), Stage.VALIDATION)


def agent(traffic, num, route="agent"):
    """Turns of a model with a tool after each; two tools at once now and then."""
    rnd = traffic.random
    for _ in range(num):
        with traffic.workflow(route) as run:
            size, cached = int(traffic.about(1_500, 0.05)), 1_280
            for turn in range(rnd.randint(1, 3)):
                run.chat(size=size, cached=cached, out=rnd.randint(20, 60),
                         finish_reason="tool_call")  # fmt: skip
                at = run.now
                for which in range(rnd.choice((1, 1, 2))):
                    run.step(
                        f"execute_tool {'abc'[which]}", traffic.about(150, 0.5), at=at,
                        attributes={keys.TOOL_CALL_ID: f"call-{turn}-{which}"},
                    )  # fmt: skip
                size, cached = size + 300, size - 20
            run.chat(size=size, cached=cached, out=int(traffic.about(120, 0.4)) + 5)


def batch(traffic, num, route="batch"):
    """Nobody waits: not streamed, class offline."""
    for _ in range(num):
        with traffic.workflow(route, slo_class="offline") as run:
            run.chat(size=int(traffic.about(2_000, 0.3)), cached=0, stream=False,
                     out=int(traffic.about(400, 0.3)) + 5)  # fmt: skip


CLEAN = {"chat": chat, "rag": rag, "agent": agent, "batch": batch}


# --- one planted fault of each kind ------------------------------------------------------------
def avoidable_calls(traffic, num):
    for n in range(num):
        with traffic.workflow("faq") as run:
            which = n % 12
            facts = prompt_facts({"system": SYSTEM, "messages": f"the question {which}"})
            run.chat(size=1_800, cached=1_024, out=120 + which,
                     attributes={**facts, keys.OUTPUT_HASH: f"answer {which}"})  # fmt: skip


def tiny_labels(traffic, num):
    for _ in range(num):
        with traffic.workflow("intent") as run:
            run.chat(size=1_200, cached=1_024, out=traffic.random.randint(1, 4))
            run.step("execute_tool route", traffic.about(50))


def serial_calls(traffic, num):
    for _ in range(num):
        with traffic.workflow("report") as run:
            for _ in range(3):
                run.step("retrieval shard", traffic.about(200), Stage.RETRIEVAL)
            run.chat(size=2_000, cached=1_024)


def serial_tools(traffic, num):
    for _ in range(num):
        with traffic.workflow("orders") as run:
            run.chat(size=1_500, cached=1_280, out=40, finish_reason="tool_call")
            for which in "xyz":
                run.step(f"execute_tool {which}", traffic.about(250),
                         attributes={keys.TOOL_CALL_ID: f"call-{which}"})  # fmt: skip
            run.chat(size=1_900, cached=1_500)


def long_outputs(traffic, num):
    for _ in range(num):
        with traffic.workflow("summary") as run:
            out = int(traffic.about(600, 0.2))
            run.attributes[f"{keys.OUTCOME_FACT_PREFIX}used_tokens"] = str(out // 5)
            run.chat(size=2_000, cached=1_024, out=out)


def reasoning_budget(traffic, num):
    for _ in range(num):
        thought = traffic.random.randint(200, 2_000)
        with traffic.workflow("think") as run:
            out = thought + 60
            run.chat(size=1_500, cached=1_024, out=out, reasoning_tokens=thought)


def unstable_prefix(traffic, num):
    for _ in range(num):
        with traffic.workflow("stamped") as run:
            system = f"now {run.begin} {SYSTEM}"
            facts = prompt_facts({"system": system, "messages": f"q {traffic.number}"})
            run.chat(size=int(traffic.about(2_500, 0.3)), cached=0, prompt_version="s1",
                     attributes=facts)  # fmt: skip


def cacheable_order(traffic, num):
    for _ in range(num):
        with traffic.workflow("upside") as run:
            facts = prompt_facts({
                "messages": f"question {traffic.number} " * 8, "system": SYSTEM, "tools": TOOLS,
            })  # fmt: skip
            run.chat(size=int(traffic.about(3_000, 0.3)), cached=0, attributes=facts)


def not_streamed(traffic, num):
    for _ in range(num):
        with traffic.workflow("letter") as run:
            run.chat(size=1_500, cached=1_024, out=int(traffic.about(350, 0.4)) + 70, stream=False)


def buffered_streams(traffic, num):
    for _ in range(num):
        with traffic.workflow("proxied") as run:
            out = int(traffic.about(300, 0.3)) + 70
            run.chat(size=1_500, cached=1_024, out=out, pace_ms=0.02, tpc=40.0,
                     more_ms=traffic.about(12, 0.1) * out)  # fmt: skip


def over_retrieval(traffic, num):
    for _ in range(num):
        with traffic.workflow("search") as run:
            number = traffic.random.randint(100, 1_000)
            passages = f"passage {traffic.number} " * number
            facts = prompt_facts({"system": SYSTEM, "reference": passages, "messages": "q"})
            run.step("retrieval everything", traffic.about(50), Stage.RETRIEVAL)
            run.chat(size=1_500 + 4 * number, cached=1_408, attributes=facts)


def unused_fanout(traffic, num):
    for n in range(num):
        with traffic.workflow("council") as run:
            at = run.now
            group = run.step("fanout experts", 10, Stage.OTHER, moves=False)
            lost = []
            for name, ms in (("law", 300), ("tax", 300), ("poetry", 900)):
                took = traffic.about(ms, 0.1)
                facts = {keys.BRANCH_NAME: name, keys.BRANCH_STATE: "completed"}
                run.step(f"branch {name}", took, Stage.OTHER, at=at, parent=group,
                         attributes=facts)  # fmt: skip
                lost.append(took)
            _widen(traffic, group, run.now)
            used = '["law", "tax"]' if n % 15 else '["law", "poetry"]'
            run.attributes[keys.BRANCH_USED] = used
            run.chat(size=1_800, cached=1_024)


def _widen(traffic, own, end_ms):
    place = next(i for i in range(len(traffic.spans) - 1, -1, -1)
                 if traffic.spans[i].span_id == own)  # fmt: skip
    traffic.spans[place] = traffic.spans[place]._replace(end_ns=round(end_ms * 1e6))


def speculation(traffic, num):
    for n in range(num):
        with traffic.workflow("guess") as run:
            state = "used" if n % 20 == 0 else "discarded"
            own = run.step("speculation next", traffic.about(400), Stage.OTHER, moves=False,
                           is_detached=True,
                           attributes={keys.SPECULATION_STATE: state})  # fmt: skip
            at = run.now
            run.chat(size=1_500, out=60, parent=own)
            run.now = at
            run.chat(size=1_800, cached=1_024)


def hedges(traffic, num):
    for _ in range(num):
        with traffic.workflow("hedged") as run:
            at = run.now
            first = traffic.about(600, 0.05)
            group = run.step("hedge model", first, Stage.OTHER, moves=False)
            won = run.step("branch a", first, Stage.OTHER, at=at, parent=group,
                           attributes={keys.BRANCH_NAME: "a",
                                       keys.BRANCH_STATE: "completed"})  # fmt: skip
            late = run.step("branch b", first - 105, Stage.OTHER, at=at + 100, parent=group,
                            attributes={keys.BRANCH_NAME: "b",
                                        keys.BRANCH_STATE: "cancelled"})  # fmt: skip
            run.chat(size=1_000, cached=512, out=10, at=at + 101, parent=late, lead_ms=50)
            run.now = at + first
            index = next(i for i, s in enumerate(reversed(traffic.spans)) if s.span_id == group)
            place = len(traffic.spans) - 1 - index
            traffic.spans[place] = traffic.spans[place]._replace(
                attributes={keys.HEDGE_WINNER: won}
            )
            run.chat(size=1_200, cached=1_024)


def premium_tier(traffic, num):
    for _ in range(num):
        with traffic.workflow("lookup") as run:
            run.step("execute_tool warehouse", traffic.about(4_000, 0.3))
            run.chat(size=1_200, cached=1_024, out=40, service_tier="priority")


def cold_paths(traffic, num):
    for n in range(num):
        with traffic.workflow("rare") as run:
            is_cold = n % 8 == 0
            run.chat(size=1_500, cached=1_024, is_cold_start=is_cold,
                     more_ms=traffic.about(3_000) if is_cold else 0.0)  # fmt: skip


def missing_deadlines(traffic, num):
    for n in range(num):
        with traffic.workflow("partner") as run:
            hangs = n % 25 == 0
            run.step("execute_tool partner", traffic.about(30_000 if hangs else 200, 0.2))
            run.chat(size=1_300, cached=1_024, out=60)


def client_serialization(traffic, num):
    free, began = 0.0, traffic.at_ms
    for n in range(num):
        traffic.at_ms = began + 300.0 * n
        with traffic.workflow("locked", service="one") as run:
            run.now = max(run.now + 1.0, free + 0.5)
            own = traffic.spans
            run.chat(size=1_200, cached=1_024, out=25, instance_id="one-1", service="one")
            free = run.now
            own[-1] = own[-1]._replace(instance_id="one-1")
        traffic.spans[-1] = traffic.spans[-1]._replace(instance_id="one-1")


FAULTS = {
    fault.__name__: fault
    for fault in (
        avoidable_calls, tiny_labels, serial_calls, serial_tools, long_outputs, reasoning_budget,
        unstable_prefix, cacheable_order, not_streamed, buffered_streams, over_retrieval,
        unused_fanout, speculation, hedges, premium_tier, cold_paths, missing_deadlines,
        client_serialization,
    )
}  # fmt: skip


def clean(name, seed, num=150):
    """The spans of one clean workload."""
    traffic = Traffic(seed)
    CLEAN[name](traffic, num)
    return traffic.spans


def planted(name, seed, num=100, num_clean=50):
    """The spans of a fault between those of all clean workloads."""
    traffic = Traffic(seed)
    for workload in CLEAN.values():
        workload(traffic, num_clean)
    FAULTS[name](traffic, num)
    order = random.Random(seed)
    order.shuffle(traffic.spans)
    return traffic.spans
