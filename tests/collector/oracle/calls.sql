-- One row a model call, each counted once: what its clients' spans tell, joined with the engine's account of it.
-- Spans of one call (a framework's, the library's below it, a native one beside it, the attempts) are one row under the outermost; a span around several calls is none.
WITH RECURSIVE
model AS NOT MATERIALIZED (
    SELECT
        *, struct_pack(hi := trace_hi, lo := trace_lo, id := span_id) AS key,
        greatest(coalesce(end_ns, start_ns) - start_ns, 0) AS wall_ns
    FROM span_rows
    WHERE is_model_call
),
hop AS NOT MATERIALIZED ( -- a plain span, an HTTP client's say, is looked through
    SELECT trace_hi, trace_lo, span_id, parent_id
    FROM span_rows
    WHERE NOT is_model_call AND operation IS NULL AND stage IS NULL AND parent_id IS NOT NULL
),
climb AS (
    SELECT m.key, m.is_engine, m.operation, m.wall_ns, h.parent_id AS up_id, 1 AS num_hops
    FROM model m
    JOIN hop h ON h.trace_hi = m.trace_hi AND h.trace_lo = m.trace_lo AND h.span_id = m.parent_id
    UNION ALL
    SELECT c.key, c.is_engine, c.operation, c.wall_ns, h.parent_id, c.num_hops + 1
    FROM climb c
    JOIN hop h ON h.trace_hi = c.key.hi AND h.trace_lo = c.key.lo AND h.span_id = c.up_id
    WHERE c.num_hops < 8
),
below AS MATERIALIZED ( -- each model span with the nearest one above it, if there is one
    SELECT
        b.*, a.key AS above, a.is_engine AS above_is_engine,
        a.operation AS above_operation, a.wall_ns AS above_wall_ns
    FROM (
        SELECT key, is_engine, operation, wall_ns, parent_id AS up_id FROM model
        UNION ALL
        SELECT key, is_engine, operation, wall_ns, up_id FROM climb
    ) b
    JOIN model a ON a.trace_hi = b.key.hi AND a.trace_lo = b.key.lo AND a.span_id = b.up_id
    WHERE a.key <> b.key
),
beside AS MATERIALIZED (
    SELECT
        struct_pack(hi := trace_hi, lo := trace_lo, id := span_id) AS key,
        struct_pack(hi := call_hi, lo := call_lo, id := call_id) AS above
    FROM call_twins
),
gateway AS MATERIALIZED ( -- a server that asks another one: neither call nor engine
    SELECT DISTINCT above AS key FROM below WHERE above_is_engine AND NOT is_engine
),
inner_span AS MATERIALIZED ( -- a client's span with the client's around it, seen through a gateway
    SELECT b.key, b.operation, b.wall_ns, b.above, b.above_operation, b.above_wall_ns
    FROM below b
    WHERE NOT b.is_engine AND NOT b.above_is_engine
    UNION ALL
    SELECT b.key, b.operation, b.wall_ns, g.above, g.above_operation, g.above_wall_ns
    FROM below b
    JOIN below g ON g.key = b.above
    WHERE NOT b.is_engine AND b.above_is_engine AND NOT g.above_is_engine
),
around_many AS MATERIALIZED ( -- a span much shorter than the one around it is a record, no call
    SELECT above AS key
    FROM inner_span ANTI JOIN beside USING (key)
    WHERE wall_ns * 100 >= above_wall_ns
    GROUP BY above
    HAVING count(*) > 1 OR bool_or(operation <> above_operation)
),
told_with AS MATERIALIZED (
    SELECT key, above FROM beside
    UNION ALL
    SELECT key, above
    FROM inner_span ANTI JOIN beside USING (key)
    WHERE above NOT IN (SELECT key FROM around_many)
),
member AS ( -- the spans of calls that several tell of, each with the span that stands for the call
    SELECT DISTINCT above AS key, above AS call
    FROM told_with
    WHERE above NOT IN (SELECT key FROM told_with)
    UNION ALL
    SELECT t.key, m.call
    FROM member m
    JOIN told_with t ON t.above = m.key
),
no_call AS MATERIALIZED ( -- spans around several calls, and what is told with them
    SELECT key FROM around_many
    UNION
    SELECT key
    FROM member
    WHERE call IN (SELECT call FROM member SEMI JOIN around_many USING (key))
),
account AS MATERIALIZED ( -- an engine's span with the call it served
    SELECT b.key, coalesce(m.call, b.above) AS call
    FROM below b
    LEFT JOIN member m ON m.key = b.above
    WHERE b.is_engine AND NOT b.above_is_engine
        AND b.key NOT IN (SELECT key FROM gateway) AND b.above NOT IN (SELECT key FROM no_call)
),
no_row AS MATERIALIZED (
    SELECT key FROM told_with
    UNION ALL SELECT key FROM no_call
    UNION ALL SELECT key FROM gateway
    UNION ALL SELECT key FROM account
    UNION ALL SELECT key FROM below WHERE is_engine AND above_is_engine
),
part AS NOT MATERIALIZED ( -- the spans of such a call, the best source first: a provider's own SDK, then from the outside in
    SELECT
        m.call, s.*,
        row_number() OVER (
            PARTITION BY m.call ORDER BY s.dialect <> 'anthropic_sdk', s.start_ns, s.key
        ) AS rank,
        -- the first event may be empty: any other source is better
        rank + 1000000 * list_contains(s.flags, 'ttft_first_event')::INT AS ttft_rank,
        max(CASE WHEN s.key = m.call THEN s.start_ns END) OVER spans AS call_start_ns,
        max(CASE WHEN s.key = m.call THEN s.parent_id END) OVER spans AS call_parent_id,
        s.start_ns < max(s.start_ns) OVER spans AS is_continued,
        is_continued AND list_contains(s.flags, 'failed_attempt') AS is_failed,
        -- tells no more than when the call began
        is_failed OR (is_continued AND list_contains(s.flags, 'stream_head')) AS is_start
    FROM member m
    JOIN model s ON s.key = m.key
    WINDOW spans AS (PARTITION BY m.call)
),
known AS NOT MATERIALIZED (
    SELECT
        call,
        any_value(COLUMNS([
            'trace_hi', 'trace_lo', 'span_id', 'parent_id', 'start_ns', 'service', 'dialect',
            'operation'
        ])) FILTER (WHERE key = call),
        arg_min(COLUMNS([
            'provider', 'request_model', 'response_model', 'response_id', 'is_streamed',
            'finish_reason', 'service_tier_requested', 'service_tier', 'input_tokens',
            'cached_input_tokens', 'cache_write_tokens', 'cache_write_1h_tokens', 'output_tokens',
            'reasoning_tokens', 'reported_cost_usd', 'ttft_attempt_ns', 'tpot_ms', 'num_chunks', 'tokens_per_chunk', 'chunk_gap_p50_ns',
            'chunk_gap_p99_ns', 'chunk_gap_max_ns', 'num_stalls', 'stall_ns', 'num_attempts',
            'retry_ns', 'stream_state', 'queue_ns', 'tokenize_ns', 'prefill_ns', 'first_decode_ns',
            'engine_decode_ns', 'engine_ttft_ns', 'route', 'route_version', 'prompt_version',
            'prefix_hash', 'cache_state', 'is_cold_start', 'conversation_id', 'outcome',
            'failure_class', 'error_type', 'weight', 'is_engine'
        ]), rank) FILTER (WHERE NOT is_start),
        CASE WHEN bool_or(key = call AND end_ns IS NOT NULL)
            THEN max(end_ns) FILTER (WHERE parent_id IS NOT DISTINCT FROM call_parent_id)
        END AS end_ns,
        arg_min(first_chunk_ns + start_ns - call_start_ns, rank)
            FILTER (WHERE NOT is_start) AS first_chunk_ns,
        arg_min(ttft_ns + start_ns - call_start_ns, ttft_rank)
            FILTER (WHERE NOT is_start) AS ttft_ns,
        arg_min(ttfv_ns + start_ns - call_start_ns, rank) FILTER (WHERE NOT is_start) AS ttfv_ns,
        arg_min(last_content_ns + start_ns - call_start_ns, rank)
            FILTER (WHERE NOT is_start) AS last_content_ns,
        count(*) FILTER (WHERE is_failed) AS num_failed,
        max(start_ns) FILTER (WHERE NOT is_start)
            - min(start_ns) FILTER (WHERE is_failed) AS failed_ns,
        arg_min(coalesce(reported_currency, 'USD'), rank)
            FILTER (WHERE NOT is_start AND reported_cost_usd IS NOT NULL) AS reported_currency,
        arg_min(ttft_ns, ttft_rank) FILTER (WHERE NOT is_start) AS own_ttft_ns,
        list_distinct(flatten(list(flags) FILTER (WHERE NOT is_start))) AS flags,
        arg_min(flags, ttft_rank) FILTER (WHERE ttft_ns IS NOT NULL AND NOT is_start) AS ttft_flags,
        bool_and(list_contains(flags, 'truncated')) FILTER (WHERE NOT is_start) AS is_truncated,
        bool_and(list_contains(flags, 'incomplete')) FILTER (WHERE NOT is_start) AS is_incomplete
    FROM part
    WHERE call NOT IN (SELECT key FROM no_call)
    GROUP BY call
),
told AS NOT MATERIALIZED (
    SELECT * REPLACE (
        CASE WHEN list_contains(flags, 'stream_head')
            THEN list_concat(flags, ['truncated', 'incomplete']) ELSE flags
        END AS flags
    )
    FROM model
    WHERE key NOT IN (SELECT key FROM no_row) AND key NOT IN (SELECT key FROM member)
    UNION ALL BY NAME
    SELECT
        * REPLACE (
            CASE WHEN num_failed > 0
                THEN num_failed + coalesce(num_attempts, 1) ELSE num_attempts
            END AS num_attempts,
            coalesce(retry_ns, failed_ns) AS retry_ns,
            coalesce(ttft_attempt_ns, CASE WHEN num_failed > 0 THEN own_ttft_ns END)
                AS ttft_attempt_ns,
            list_concat(
                list_filter(flags, lambda mark: NOT starts_with(mark, 'ttft_')
                    AND mark NOT IN ('stream_head', 'stream_summary', 'failed_attempt')
                    AND (is_truncated OR mark <> 'truncated')
                    AND (is_incomplete OR mark <> 'incomplete')),
                list_filter(ttft_flags, lambda mark: starts_with(mark, 'ttft_'))
            ) AS flags
        ),
        call AS key
    FROM known
),
engine AS NOT MATERIALIZED ( -- of several engines (attempts) the last to end answered
    SELECT a.call, s.*
    FROM account a
    JOIN model s ON s.key = a.key
    QUALIFY row_number() OVER (
        PARTITION BY a.call ORDER BY s.end_ns DESC NULLS LAST, s.start_ns DESC, s.span_id DESC
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
    c.service_tier AS service_tier, -- tier received
    coalesce(c.input_tokens, e.input_tokens) AS input_tokens, -- all the prompt held: uncached, cached and cache-write
    CASE WHEN coalesce(c.cached_input_tokens, e.cached_input_tokens) IS NOT NULL
        THEN coalesce(c.input_tokens, e.input_tokens)
            - coalesce(c.cached_input_tokens, e.cached_input_tokens)
            - coalesce(c.cache_write_tokens, e.cache_write_tokens, 0)
    END AS uncached_input_tokens, -- input neither read from nor written to a cache; null if input or cached is unknown
    coalesce(c.cached_input_tokens, e.cached_input_tokens) AS cached_input_tokens, -- read from a prompt cache
    coalesce(c.cache_write_tokens, e.cache_write_tokens) AS cache_write_tokens, -- written to a prompt cache
    coalesce(c.cache_write_1h_tokens, e.cache_write_1h_tokens) AS cache_write_1h_tokens, -- the part of these that lives an hour
    coalesce(c.output_tokens, e.output_tokens) AS output_tokens, -- all produced, reasoning included
    c.reasoning_tokens AS reasoning_tokens, -- reasoning part of the output
    c.first_chunk_ns / 1e6 AS first_chunk_ms, -- first event of any kind, ms since the call was made
    coalesce(c.ttft_ns, CASE WHEN c.is_engine THEN c.engine_ttft_ns END)
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
    c.num_attempts AS num_attempts, -- attempts, the first included
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
    price_of(
        c.provider, coalesce(c.request_model, e.request_model),
        coalesce(c.response_model, e.response_model), c.service_tier, c.start_ns,
        coalesce(c.input_tokens, e.input_tokens),
        coalesce(c.cached_input_tokens, e.cached_input_tokens),
        coalesce(c.cache_write_tokens, e.cache_write_tokens),
        coalesce(c.cache_write_1h_tokens, e.cache_write_1h_tokens),
        coalesce(c.output_tokens, e.output_tokens), c.reasoning_tokens,
        c.reported_cost_usd, c.reported_currency
    ) AS price,
    struct_extract(price, 'cost_usd') AS cost_usd, -- what the call cost
    struct_extract(price, 'price_version') AS price_version, -- what priced it
    c.reported_cost_usd AS reported_cost_usd, -- what the sender said the call cost
    c.reported_currency AS reported_currency, -- currency of that
    CASE WHEN c.is_engine THEN list_append(c.flags, 'engine_side') ELSE c.flags END AS flags, -- data-quality marks; engine_side: no client span
    coalesce(c.weight, 1.0) AS weight -- how many calls it stands for
FROM told c
LEFT JOIN engine e ON e.call = c.key
