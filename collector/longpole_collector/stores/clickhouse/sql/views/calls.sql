-- One row a model call, each counted once, with what it cost by the prices when it was settled.
-- What is not said here is the table's column, or that in nanoseconds as milliseconds.
WITH
    input_tokens - cached_input_tokens - coalesce(cache_write_tokens, 0) AS uncached_input_tokens,
    if(end_ns < start_ns, 0, end_ns - start_ns) / 1e6 AS e2e_ms,
    coalesce(other_response_id, told_response_id) AS response_id
SELECT {columns} FROM call_rows FINAL
LEFT ANY JOIN (
    SELECT trace_id, span_id, start_ns, response_id AS told_response_id
    FROM span_rows WHERE is_model_call AND response_id IS NOT NULL
) AS told USING (trace_id, span_id, start_ns)
