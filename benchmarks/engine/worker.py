"""One side of a speed comparison, in a process and environment of its own.

    python -m benchmarks.engine.worker SIDE MODEL THREADS

Reads jobs as JSON lines, ``{"what": "decode", "rows": 4}`` or ``{"what": "prefill"}``, and answers
each with milliseconds a step, or for the prompt. Contexts are 60 tokens and 32 more for decoding;
prompts 256.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

Job = Callable[[int], float]

_CONTEXT: Final = 60
_STEPS: Final = 32
_PROMPT: Final = 256


def prompt(number: int, num: int) -> list[int]:
    """Plain tokens, different for each number."""
    return [1000 + (number * 7919 + index * 31) % 40_000 for index in range(num)]


def ours(weights: str) -> Callable[[str, int], tuple[Job, Job]]:
    """The whole engine, stepped by hand: scheduler, sampler and text included."""

    def make(_: str, threads: int) -> tuple[Job, Job]:
        from benchmarks.engine.driver import Driver

        from longpole_engine.config import Weights
        from longpole_engine.models.loader import load

        driver = Driver(load("smollm2"), threads, weights=Weights(weights), is_prefix_cached=False)
        number = 0

        def decode(rows: int) -> float:
            nonlocal number
            names = []
            for _ in range(rows):
                number += 1
                names.append(driver.submit(prompt(number, _CONTEXT), _STEPS + 1))
            while any(not driver.times[name] for name in names):
                driver.engine.step()
            steps, begun = 0, time.perf_counter()
            while all(len(driver.times[name]) <= _STEPS for name in names):
                driver.engine.step()
                steps += 1
            seconds = time.perf_counter() - begun
            driver.drain()
            return seconds / steps * 1e3

        def prefill(_: int) -> float:
            nonlocal number
            number += 1
            name = driver.submit(prompt(number, _PROMPT), 1)
            driver.drain()
            return driver.ttft_s(name) * 1e3

        return decode, prefill

    return make


def llama_cpp(path: str, threads: int) -> tuple[Job, Job]:
    """llama.cpp's server in process, as the package ``xllamacpp`` binds it; its own timings."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel = 8 * 1024, 8
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0
    params.verbosity = -1
    server = xllamacpp.Server(params)
    number = 0

    def ask(tokens: list[int], num: int, found: list[dict[str, Any]]) -> None:
        body = {
            "prompt": tokens,
            "n_predict": num,
            "ignore_eos": True,
            "temperature": 0,
            "cache_prompt": False,
        }

        def keep(answer: Any) -> None:
            found.append(answer if isinstance(answer, dict) else json.loads(answer))

        server.handle_completions(body, keep)

    def decode(rows: int) -> float:
        nonlocal number
        found: list[dict[str, Any]] = []
        calls = []
        for _ in range(rows):
            number += 1
            args = (prompt(number, _CONTEXT), _STEPS, found)
            calls.append(threading.Thread(target=ask, args=args))
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        # the last to start waited for no other prompt: its steps are all of the full batch
        return float(min(answer["timings"]["predicted_per_token_ms"] for answer in found))

    def prefill(_: int) -> float:
        nonlocal number
        number += 1
        found: list[dict[str, Any]] = []
        ask(prompt(number, _PROMPT), 1, found)
        return float(found[0]["timings"]["prompt_ms"])

    return decode, prefill


def transformers(_: str, threads: int) -> tuple[Job, Job]:
    """``generate`` of Hugging Face's own Llama on the same fp32 weights."""
    import torch
    from benchmarks.engine.hugging_face import model

    torch.set_num_threads(threads)
    llama = model()

    def generate(rows: int, length: int, num: int) -> list[float]:
        """Seconds from the call to each token's logits."""
        times: list[float] = []

        def note(_: Any, scores: Any) -> Any:
            times.append(time.perf_counter() - begun)
            return scores

        ids = torch.tensor([prompt(row, length) for row in range(rows)])
        begun = time.perf_counter()
        with torch.inference_mode():
            llama.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=num,
                max_new_tokens=num,
                pad_token_id=0,
                logits_processor=[note],
            )
        return times

    def decode(rows: int) -> float:
        times = generate(rows, _CONTEXT, 17)
        return (times[-1] - times[0]) / 16 * 1e3

    return decode, lambda _: generate(1, _PROMPT, 1)[0] * 1e3


SIDES: Final[dict[str, Callable[[str, int], tuple[Job, Job]]]] = {
    "int4": ours("int4"),
    "int8": ours("int8"),
    "llama_cpp": llama_cpp,
    "transformers": transformers,
}


def main() -> None:
    """Answer jobs until the input ends."""
    side, path, threads = sys.argv[1:]
    decode, prefill = SIDES[side](path, int(threads))
    decode(1)
    prefill(0)
    print(json.dumps({"ready": side}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        ms = prefill(0) if job["what"] == "prefill" else decode(job["rows"])
        print(json.dumps({"ms": ms}), flush=True)


if __name__ == "__main__":
    main()
