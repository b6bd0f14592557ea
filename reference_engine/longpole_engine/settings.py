"""The keys of the table ``[engine]`` and their defaults."""

from longpole.config import Scalar

DEFAULTS: dict[str, Scalar | None] = {
    "host": "127.0.0.1",
    "port": 8000,
    "model": "smollm2",
    "weights": "int4",
    "numerics": "fast",
    "kv_format": "fp32",
    "policy": "fcfs",
    "batching": "continuous",
    "preemption": "recompute",
    "eviction": "session",
    "max_num_seqs": 8,
    "max_model_tokens": 4096,
    "max_step_tokens": 256,
    "chunked_prefill": True,
    "max_queue": 64,
    "deadline_s": 0,
    "kv_pages": 0,
    "prefix_cache": True,
    "prefix_cache_mb": 512,
    "num_threads": 2,
    "num_decode_threads": 1,
    "speculation": "ngram",
    "num_drafts": 3,
    "dynamic_drafts": True,
    "exit_layers": 0,
    "draft_model": "",
    "regret_budget": 0.0,
    "regret_exceptions": 8,
    "regret_routes": "",
    "max_body_bytes": 2_097_152,
    "drain_s": 10,
    "otlp_endpoint": "http://127.0.0.1:4318",
}
"""``regret_routes`` are separated by commas. ``otlp_endpoint`` at its default gives way to
``OTEL_EXPORTER_OTLP_ENDPOINT``."""
