"""The next check for each long pole: one sentence, the same in every report and page."""

from typing import Final

from longpole.vocab import Stage

NEXT_CHECK: Final[dict[Stage, str]] = {
    Stage.ADMISSION: "raise the limiter's concurrency, or send less at once",
    Stage.NETWORK: "reuse connections, look for a proxy that buffers, move closer to the model",
    Stage.QUEUE: "compare arrivals with capacity: add replicas or shed load before it queues",
    Stage.COLD_START: "keep one instance warm, or load weights from a local cache",
    Stage.TOKENIZE: "look for very long prompts or a slow tokenizer",
    Stage.PREFILL: "compare uncached input tokens with the usual: shorten the prompt or keep its "
    "prefix stable so that it is cached",
    Stage.FIRST_DECODE: "look at the batch size while this request was decoding",
    Stage.TTFT_OPAQUE: "trace the engine, or ask the provider for its queue and prefill times: "
    "nothing explains this wait yet",
    Stage.LATER_DECODE: "compare output tokens with what is used, time per token with the usual",
    Stage.STREAM: "look at what the client does between chunks, and for a proxy that buffers",
    Stage.TOOL: "look for tools that run one after another and could run side by side",
    Stage.RETRIEVAL: "time the search and the rerank apart; ask for fewer passages",
    Stage.VALIDATION: "validate while the answer streams, or with a smaller model",
    Stage.RETRY: "look at the error class of the failed attempts, then at timeouts and back-off",
    Stage.HUMAN_WAIT: "this is a person's time: keep it out of latency objectives",
    Stage.RENDER: "look at the page: paint while the answer streams",
    Stage.OTHER: "own code, or steps without a span: add steps to see which",
}
"""What to look at first when a stage is the long pole."""
