-- One row a model call, each counted once: what the client saw, joined with the engine's account of it.
-- An engine's or an inner library's span of the same call (its child, also through one HTTP client span) is no row of its own.
WITH model AS NOT MATERIALIZED (
    SELECT * FROM span_rows WHERE is_model_call
),
hop AS NOT MATERIALIZED ( -- an HTTP client span between two accounts of one call
    SELECT trace_hi, trace_lo, span_id, parent_id
    FROM span_rows
    WHERE kind = 'client' AND operation IS NULL AND NOT is_model_call
),
linked AS NOT MATERIALIZED ( -- each model span with the model span above it, if there is one
    SELECT m.*, coalesce(direct.span_id, far.span_id) AS above_id
    FROM model m
    LEFT JOIN model direct
        ON direct.trace_hi = m.trace_hi AND direct.trace_lo = m.trace_lo
        AND direct.span_id = m.parent_id AND direct.span_id <> m.span_id
    LEFT JOIN hop
        ON hop.trace_hi = m.trace_hi AND hop.trace_lo = m.trace_lo AND hop.span_id = m.parent_id
    LEFT JOIN model far
        ON far.trace_hi = m.trace_hi AND far.trace_lo = m.trace_lo
        AND far.span_id = hop.parent_id
),
below AS NOT MATERIALIZED ( -- of several accounts of a call (attempts), the last to end
    SELECT *
    FROM linked
    WHERE above_id IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY trace_hi, trace_lo, above_id, is_engine
        ORDER BY coalesce(end_ns, start_ns) DESC, span_id
    ) = 1
)
SELECT
    trace_hex(c.trace_hi, c.trace_lo) AS trace_id, -- trace id, 32 hex digits
    span_hex(c.span_id) AS span_id, -- span id, 16 hex digits
    span_hex(c.parent_id) AS parent_id, -- parent's span id; null for a root
    c.start_ns AS start_ns, -- start, Unix epoch, ns
    c.end_ns AS end_ns, -- end, Unix epoch, ns; null while unfinished
    c.service AS service, -- service.name
    c.dialect AS dialect, -- which reader understood the span
    c.operation AS operation, -- chat, text_completion, generate_content, embeddings
    c.provider AS provider, -- provider's name
    coalesce(c.request_model, e.request_model) AS request_model, -- model asked for
    coalesce(c.response_model, e.response_model) AS response_model, -- model that answered
    c.response_id AS response_id, -- the provider's id of the answer
    coalesce(c.is_streamed, e.is_streamed) AS is_streamed, -- the answer came in chunks
    coalesce(c.finish_reason, e.finish_reason) AS finish_reason, -- stop, length, tool_call, content_filter, error
    c.service_tier_requested AS service_tier_requested, -- tier asked for
    coalesce(c.service_tier, i.service_tier) AS service_tier, -- tier received
    coalesce(c.input_tokens, e.input_tokens) AS input_tokens, -- all the prompt held: uncached, cached and cache-write
    CASE WHEN coalesce(c.cached_input_tokens, e.cached_input_tokens) IS NOT NULL
        THEN coalesce(c.input_tokens, e.input_tokens)
            - coalesce(c.cached_input_tokens, e.cached_input_tokens)
            - coalesce(c.cache_write_tokens, e.cache_write_tokens, 0)
    END AS uncached_input_tokens, -- input neither read from nor written to a cache; null if input or cached is unknown
    coalesce(c.cached_input_tokens, e.cached_input_tokens) AS cached_input_tokens, -- read from a prompt cache
    coalesce(c.cache_write_tokens, e.cache_write_tokens) AS cache_write_tokens, -- written to a prompt cache
    coalesce(c.output_tokens, e.output_tokens) AS output_tokens, -- all produced, reasoning included
    c.reasoning_tokens AS reasoning_tokens, -- reasoning part of the output
    c.first_chunk_ns / 1e6 AS first_chunk_ms, -- first event of any kind, ms since the call was made
    coalesce(c.ttft_ns, i.ttft_ns, CASE WHEN c.is_engine THEN c.engine_ttft_ns END)
        / 1e6 AS ttft_ms, -- first content event, ms; of a call seen by the engine only, its first token since arrival
    c.ttfv_ns / 1e6 AS ttfv_ms, -- first visible text, ms
    c.tpot_ms AS tpot_ms, -- ms per output token after the first
    not_negative(c.end_ns - c.start_ns) / 1e6 AS e2e_ms, -- start to end, ms
    (c.last_content_ns - c.ttft_ns) / 1e6 AS decode_ms, -- first to last content event, ms
    (not_negative(c.end_ns - c.start_ns) - c.last_content_ns) / 1e6 AS tail_ms, -- last content event to end, ms
    c.num_chunks AS num_chunks, -- content events
    c.tokens_per_chunk AS tokens_per_chunk, -- output tokens per content event
    c.chunk_gap_p50_ns / 1e6 AS chunk_gap_p50_ms, -- median gap between content events, ms
    c.chunk_gap_p99_ns / 1e6 AS chunk_gap_p99_ms, -- 99th percentile gap, ms
    c.chunk_gap_max_ns / 1e6 AS chunk_gap_max_ms, -- largest gap, ms
    c.num_stalls AS num_stalls, -- gaps over max(5 x median, 250 ms)
    c.stall_ns / 1e6 AS stall_ms, -- sum of these gaps, ms
    coalesce(c.num_attempts, i.num_attempts) AS num_attempts, -- attempts, the first included
    c.retry_ns / 1e6 AS retry_ms, -- failed attempts and waits, ms
    coalesce(e.queue_ns, c.queue_ns) / 1e6 AS queue_ms, -- engine: waiting to be scheduled, ms
    coalesce(e.tokenize_ns, c.tokenize_ns) / 1e6 AS tokenize_ms, -- engine: arrival to tokens ready, ms
    coalesce(e.prefill_ns, c.prefill_ns) / 1e6 AS prefill_ms, -- engine: scheduled to prompt complete, ms
    coalesce(e.first_decode_ns, c.first_decode_ns) / 1e6 AS first_decode_ms, -- engine: prompt to first token, ms
    coalesce(e.engine_decode_ns, c.engine_decode_ns) / 1e6 AS engine_decode_ms, -- engine: first to last token, ms
    not_negative(coalesce(c.ttft_attempt_ns, c.ttft_ns) - e.engine_ttft_ns) / 1e6 AS network_ms, -- client's time to first content that the engine does not account for, ms
    c.route AS route, -- route id
    c.route_version AS route_version, -- route version
    c.prompt_version AS prompt_version, -- prompt version
    c.prefix_hash AS prefix_hash, -- keyed hash of the stable prefix
    coalesce(c.cache_state, e.cache_state) AS cache_state, -- hit, partial, miss, ineligible
    coalesce(e.is_cold_start, c.is_cold_start) AS is_cold_start, -- first call on a cold engine
    c.conversation_id AS conversation_id, -- conversation or session id
    c.outcome AS outcome, -- accepted, rejected, failed; null is unknown, not success
    c.failure_class AS failure_class, -- kind of failure
    coalesce(c.error_type, e.error_type) AS error_type, -- exception class or provider's error code
    c.stream_state AS stream_state, -- completed, closed_early, error, abandoned
    NULL::DOUBLE AS cost_usd, -- price of the call; null while no price is known
    CASE WHEN c.is_engine THEN list_append(c.flags, 'engine_side') ELSE c.flags END AS flags -- data-quality marks; engine_side: no client span
FROM linked c
-- e: the engine's account of the call; i: an inner library's
LEFT JOIN below e
    ON e.trace_hi = c.trace_hi AND e.trace_lo = c.trace_lo AND e.above_id = c.span_id
    AND e.is_engine
LEFT JOIN below i
    ON i.trace_hi = c.trace_hi AND i.trace_lo = c.trace_lo AND i.above_id = c.span_id
    AND NOT i.is_engine
WHERE c.above_id IS NULL
