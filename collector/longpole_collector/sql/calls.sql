-- One row a model call, each counted once: what its clients' spans tell, joined with the engine's account of it.
-- Spans of one call (a framework's, the library's below it, a native one beside it, the attempts) are one row under the outermost; a span around several calls is none. Which spans are calls is settled a moment after they arrive.
WITH c AS NOT MATERIALIZED (
    SELECT * FROM span_rows WHERE call_role = 1
    UNION ALL BY NAME
    SELECT * FROM call_rows
)
SELECT
    trace_hex(trace_hi, trace_lo) AS trace_id, -- trace id, 32 hex digits
    span_hex(c.span_id) AS span_id, -- span id, 16 hex digits
    span_hex(c.parent_id) AS parent_id, -- parent's span id; null for a root
    start_ns, -- start, Unix epoch, ns
    end_ns, -- end, Unix epoch, ns; null while unfinished
    service, -- service.name
    dialect, -- which reader understood the span
    operation, -- chat, text_completion, generate_content, embeddings
    provider, -- provider's name
    request_model, -- model asked for
    response_model, -- model that answered
    response_id, -- the provider's id of the answer
    is_streamed, -- the answer came in chunks
    finish_reason, -- stop, length, tool_call, content_filter, error
    service_tier_requested, -- tier asked for
    service_tier, -- tier received
    input_tokens, -- all the prompt held: uncached, cached and cache-write
    input_tokens - cached_input_tokens - coalesce(cache_write_tokens, 0) AS uncached_input_tokens, -- input neither read from nor written to a cache; null if input or cached is unknown
    cached_input_tokens, -- read from a prompt cache
    cache_write_tokens, -- written to a prompt cache
    cache_write_1h_tokens, -- the part of these that lives an hour
    output_tokens, -- all produced, reasoning included
    reasoning_tokens, -- reasoning part of the output
    first_chunk_ns / 1e6 AS first_chunk_ms, -- first event of any kind, ms since the call was made
    coalesce(ttft_ns, CASE WHEN is_engine THEN engine_ttft_ns END)
        / 1e6 AS ttft_ms, -- first content event, ms; of a call seen by the engine only, its first token since arrival
    ttfv_ns / 1e6 AS ttfv_ms, -- first visible text, ms
    tpot_ms, -- ms per output token after the first
    not_negative(end_ns - start_ns) / 1e6 AS e2e_ms, -- start to end, ms
    (last_content_ns - ttft_ns) / 1e6 AS decode_ms, -- first to last content event, ms
    (not_negative(end_ns - start_ns) - last_content_ns) / 1e6 AS tail_ms, -- last content event to end, ms
    num_chunks, -- content events
    tokens_per_chunk, -- output tokens per content event
    chunk_gap_p50_ns / 1e6 AS chunk_gap_p50_ms, -- median gap between content events, ms
    chunk_gap_p99_ns / 1e6 AS chunk_gap_p99_ms, -- 99th percentile gap, ms
    chunk_gap_max_ns / 1e6 AS chunk_gap_max_ms, -- largest gap, ms
    num_stalls, -- gaps over max(5 x median, 250 ms)
    stall_ns / 1e6 AS stall_ms, -- sum of these gaps, ms
    num_attempts, -- attempts, the first included
    retry_ns / 1e6 AS retry_ms, -- failed attempts and waits, ms
    queue_ns / 1e6 AS queue_ms, -- engine: waiting to be scheduled, ms
    tokenize_ns / 1e6 AS tokenize_ms, -- engine: arrival to tokens ready, ms
    prefill_ns / 1e6 AS prefill_ms, -- engine: scheduled to prompt complete, ms
    first_decode_ns / 1e6 AS first_decode_ms, -- engine: prompt to first token, ms
    engine_decode_ns / 1e6 AS engine_decode_ms, -- engine: first to last token, ms
    network_ns / 1e6 AS network_ms, -- client's time to first content that the engine does not account for, ms
    route, -- route id
    route_version, -- route version
    prompt_version, -- prompt version
    prefix_hash, -- keyed hash of the stable prefix
    cache_state, -- hit, partial, miss, ineligible
    is_cold_start, -- first call on a cold engine
    conversation_id, -- conversation or session id
    outcome, -- accepted, rejected, failed; null is unknown, not success
    failure_class, -- kind of failure
    error_type, -- exception class or provider's error code
    stream_state, -- completed, closed_early, error, abandoned
    price_of(
        provider, request_model, response_model, service_tier, start_ns, input_tokens,
        cached_input_tokens, cache_write_tokens, cache_write_1h_tokens, output_tokens,
        reasoning_tokens, reported_cost_usd, reported_currency
    ).cost_usd AS cost_usd, -- what the call cost by the prices in force, or as the provider said; null while no price is known
    price_of(
        provider, request_model, response_model, service_tier, start_ns, input_tokens,
        cached_input_tokens, cache_write_tokens, cache_write_1h_tokens, output_tokens,
        reasoning_tokens, reported_cost_usd, reported_currency
    ).price_version AS price_version, -- what priced it: the table, with the user's file if that decided, or the provider; null without a cost
    reported_cost_usd, -- what the sender said the call cost
    reported_currency, -- currency of that; US dollars if null
    list_concat(
        flags,
        CASE WHEN list_contains(flags, 'stream_head') THEN ['truncated', 'incomplete'] END,
        CASE WHEN is_engine THEN ['engine_side'] END
    ) AS flags, -- data-quality marks; engine_side: no client span
    coalesce(weight, 1.0) AS weight -- how many calls it stands for: more than 1 where traces were sampled
FROM c
