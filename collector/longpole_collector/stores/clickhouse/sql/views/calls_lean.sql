-- Model calls without the ids of their answers, which lie with the spans: what most queries read.
WITH
    input_tokens - cached_input_tokens - coalesce(cache_write_tokens, 0) AS uncached_input_tokens,
    if(end_ns < start_ns, 0, end_ns - start_ns) / 1e6 AS e2e_ms
SELECT {columns} FROM call_rows FINAL
