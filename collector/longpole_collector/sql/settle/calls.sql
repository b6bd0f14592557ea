-- From the spans of model calls in `model` to one row a call: what its clients' spans tell, joined with the engine's account of it.
-- Spans of one call (a framework's, the library's below it, a native one beside it, the attempts) are one row under the outermost; a span around several calls is none.
-- `model` has a number for each span (`key`), that of the nearest model call above it (`above`) and one for its parent (`place`; null for a root); `beside` says which spans tell of an earlier one's call beside them.

CREATE OR REPLACE TABLE below AS -- each model span with the nearest one above it, if there is one
SELECT
    b.key, b.is_engine, b.operation, b.wall_ns, b.above, a.is_engine AS above_is_engine,
    a.operation AS above_operation, a.wall_ns AS above_wall_ns
FROM model b
JOIN model a ON a.key = b.above;

CREATE OR REPLACE TABLE inner_span AS -- a client's span with the client's around it, seen through a gateway
WITH inside AS (
    SELECT key, operation, wall_ns, above, above_operation, above_wall_ns
    FROM below
    WHERE NOT is_engine AND NOT above_is_engine
    UNION ALL
    SELECT b.key, b.operation, b.wall_ns, g.above, g.above_operation, g.above_wall_ns
    FROM below b
    JOIN below g ON g.key = b.above
    WHERE NOT b.is_engine AND b.above_is_engine AND NOT g.above_is_engine
)
SELECT * FROM inside ANTI JOIN beside USING (key);

CREATE OR REPLACE TABLE around_many AS -- a span much shorter than the one around it is a record, no call
SELECT above AS key
FROM inner_span
WHERE wall_ns * 100 >= above_wall_ns
GROUP BY above
HAVING count(*) > 1 OR bool_or(operation <> above_operation);

CREATE OR REPLACE TABLE told_with AS
SELECT key, above FROM beside
UNION ALL
SELECT key, above FROM inner_span WHERE above NOT IN (SELECT key FROM around_many);

CREATE OR REPLACE TABLE member AS -- the spans of calls that several tell of, each with the span that stands for the call
WITH RECURSIVE member AS (
    SELECT DISTINCT above AS key, above AS call
    FROM told_with
    WHERE above NOT IN (SELECT key FROM told_with)
    UNION ALL
    SELECT t.key, m.call
    FROM member m
    JOIN told_with t ON t.above = m.key
)
SELECT key, call FROM member;

CREATE OR REPLACE TABLE no_call AS -- spans around several calls, and what is told with them
SELECT key FROM around_many
UNION
SELECT key FROM member WHERE call IN (SELECT call FROM member SEMI JOIN around_many USING (key));

CREATE OR REPLACE TABLE gateway AS -- a server that asks another one: neither call nor engine
SELECT DISTINCT above AS key FROM below WHERE above_is_engine AND NOT is_engine;

CREATE OR REPLACE TABLE account AS -- an engine's span with the call it served
SELECT b.key, coalesce(m.call, b.above) AS call
FROM below b
LEFT JOIN member m ON m.key = b.above
WHERE b.is_engine AND NOT b.above_is_engine
    AND b.key NOT IN (SELECT key FROM gateway) AND b.above NOT IN (SELECT key FROM no_call);

CREATE OR REPLACE TABLE role AS -- by span: 0 no row of its own, 1 a call alone, 2 stands for a merged row; and whether its call is another trace's
WITH no_row AS (
    SELECT key FROM told_with
    UNION ALL SELECT key FROM no_call
    UNION ALL SELECT key FROM gateway
    UNION ALL SELECT key FROM account
    UNION ALL SELECT key FROM below WHERE is_engine AND above_is_engine
),
merged AS (
    SELECT call FROM member
    UNION ALL SELECT call FROM account
)
SELECT
    key,
    CASE
        WHEN key IN (SELECT key FROM no_row) THEN 0
        WHEN key IN (SELECT call FROM merged) THEN 2
        ELSE 1
    END AS call_role,
    key IN (
        SELECT m.key
        FROM member m
        JOIN model s ON s.key = m.key
        JOIN model c ON c.key = m.call
        WHERE (s.trace_hi <> c.trace_hi OR s.trace_lo <> c.trace_lo)
            AND m.call NOT IN (SELECT key FROM no_call)
    ) AS is_elsewhere
FROM model
ORDER BY key;

CREATE OR REPLACE TABLE part AS -- the clients' spans of merged calls, the best source first: a provider's own SDK, then from the outside in
SELECT
    m.call, s.key, s.start_ns, s.end_ns, s.start_ns - c.start_ns AS since_ns,
    s.parent_id IS NOT DISTINCT FROM c.parent_id AS is_beside,
    row_number() OVER (
        PARTITION BY m.call ORDER BY s.dialect <> 'anthropic_sdk', s.start_ns, s.key
    ) AS rank,
    -- the first event may be empty: any other source is better
    rank + 1000000 * list_contains(s.flags, 'ttft_first_event')::INT AS ttft_rank,
    s.start_ns < max(s.start_ns) OVER (PARTITION BY m.call) AS is_continued,
    is_continued AND list_contains(s.flags, 'failed_attempt') AS is_failed,
    -- tells no more than when the call began
    is_failed OR (is_continued AND list_contains(s.flags, 'stream_head')) AS is_start
FROM member m
JOIN model s ON s.key = m.key
JOIN model c ON c.key = m.call
WHERE m.call NOT IN (SELECT key FROM no_call);

CREATE OR REPLACE TABLE known AS -- what they know
SELECT
    p.call,
    arg_min(COLUMNS([
        'provider', 'request_model', 'response_model', 'response_id', 'is_streamed',
        'finish_reason', 'service_tier_requested', 'service_tier', 'input_tokens',
        'cached_input_tokens', 'cache_write_tokens', 'cache_write_1h_tokens', 'output_tokens',
        'reasoning_tokens', 'reported_cost_usd', 'ttft_attempt_ns', 'tpot_ms', 'num_chunks', 'tokens_per_chunk', 'chunk_gap_p50_ns',
        'chunk_gap_p99_ns', 'chunk_gap_max_ns', 'num_stalls', 'stall_ns', 'num_attempts',
        'retry_ns', 'stream_state', 'queue_ns', 'tokenize_ns', 'prefill_ns', 'first_decode_ns',
        'engine_decode_ns', 'route', 'route_version', 'prompt_version', 'prefix_hash',
        'cache_state', 'is_cold_start', 'conversation_id', 'outcome', 'failure_class',
        'error_type', 'weight'
    ]), p.rank),
    arg_min(coalesce(m.reported_currency, 'USD'), p.rank)
        FILTER (WHERE m.reported_cost_usd IS NOT NULL) AS reported_currency,
    arg_min(m.first_chunk_ns + p.since_ns, p.rank) AS first_chunk_ns,
    arg_min(m.ttft_ns + p.since_ns, p.ttft_rank) AS ttft_ns,
    arg_min(m.ttfv_ns + p.since_ns, p.rank) AS ttfv_ns,
    arg_min(m.last_content_ns + p.since_ns, p.rank) AS last_content_ns,
    arg_min(m.ttft_ns, p.ttft_rank) AS own_ttft_ns,
    list_distinct(flatten(list(m.flags))) AS flags,
    arg_min(CASE WHEN m.ttft_ns IS NOT NULL THEN m.flags END, p.ttft_rank) AS ttft_flags,
    bool_and(list_contains(m.flags, 'truncated')) AS is_truncated,
    bool_and(list_contains(m.flags, 'incomplete')) AS is_incomplete
FROM part p
JOIN model m ON m.key = p.key
WHERE NOT p.is_start
GROUP BY p.call;

CREATE OR REPLACE TABLE client AS -- the clients' half of each merged call: one span's as it is, or of several
WITH extent AS (
    SELECT
        call, max(end_ns) FILTER (WHERE is_beside) AS end_ns,
        count(*) FILTER (WHERE is_failed) AS num_failed,
        max(start_ns) FILTER (WHERE NOT is_start) - min(start_ns) FILTER (WHERE is_failed)
            AS failed_ns
    FROM part
    GROUP BY call
)
SELECT *, key AS call
FROM model
WHERE key IN (SELECT key FROM role WHERE call_role = 2) AND key NOT IN (SELECT call FROM known)
UNION ALL BY NAME
SELECT
    k.* EXCLUDE (own_ttft_ns, ttft_flags, is_truncated, is_incomplete) REPLACE (
        CASE WHEN x.num_failed > 0
            THEN x.num_failed + coalesce(k.num_attempts, 1) ELSE k.num_attempts
        END AS num_attempts,
        coalesce(k.retry_ns, x.failed_ns) AS retry_ns,
        coalesce(k.ttft_attempt_ns, CASE WHEN x.num_failed > 0 THEN k.own_ttft_ns END)
            AS ttft_attempt_ns,
        list_concat(
            list_filter(k.flags, lambda mark: NOT starts_with(mark, 'ttft_')
                AND mark NOT IN ('stream_head', 'stream_summary', 'failed_attempt')
                AND (k.is_truncated OR mark <> 'truncated')
                AND (k.is_incomplete OR mark <> 'incomplete')),
            list_filter(k.ttft_flags, lambda mark: starts_with(mark, 'ttft_'))
        ) AS flags
    ),
    c.trace_hi, c.trace_lo, c.span_id, c.parent_id, c.start_ns, c.service, c.dialect, c.operation,
    CASE WHEN c.end_ns IS NOT NULL THEN x.end_ns END AS end_ns
FROM known k
JOIN extent x USING (call)
JOIN model c ON c.key = k.call;

CREATE OR REPLACE TABLE merged AS
WITH engine AS ( -- of several engines (attempts) the last to end answered
    SELECT a.call, s.*
    FROM account a
    JOIN model s ON s.key = a.key
    QUALIFY row_number() OVER (
        PARTITION BY a.call ORDER BY s.end_ns DESC NULLS LAST, s.start_ns DESC, s.span_id DESC
    ) = 1
)
SELECT
    c.trace_hi, c.trace_lo, c.span_id, c.parent_id, c.start_ns, c.end_ns, c.service, c.dialect,
    c.operation, c.provider, c.response_id, c.service_tier_requested, c.service_tier,
    c.reasoning_tokens, c.reported_cost_usd, c.reported_currency, c.first_chunk_ns, c.ttft_ns, c.ttfv_ns, c.last_content_ns, c.tpot_ms,
    c.num_chunks, c.tokens_per_chunk, c.chunk_gap_p50_ns, c.chunk_gap_p99_ns, c.chunk_gap_max_ns,
    c.num_stalls, c.stall_ns, c.num_attempts, c.retry_ns, c.stream_state, c.route,
    c.route_version, c.prompt_version, c.prefix_hash, c.conversation_id, c.outcome,
    c.failure_class, c.flags, c.weight,
    coalesce(c.error_type, e.error_type) AS error_type,
    coalesce(c.is_streamed, e.is_streamed) AS is_streamed,
    coalesce(c.request_model, e.request_model) AS request_model,
    coalesce(c.response_model, e.response_model) AS response_model,
    coalesce(c.finish_reason, e.finish_reason) AS finish_reason,
    coalesce(c.input_tokens, e.input_tokens) AS input_tokens,
    coalesce(c.cached_input_tokens, e.cached_input_tokens) AS cached_input_tokens,
    coalesce(c.cache_write_tokens, e.cache_write_tokens) AS cache_write_tokens,
    coalesce(c.cache_write_1h_tokens, e.cache_write_1h_tokens) AS cache_write_1h_tokens,
    coalesce(c.output_tokens, e.output_tokens) AS output_tokens,
    coalesce(c.cache_state, e.cache_state) AS cache_state,
    coalesce(e.tokenize_ns, c.tokenize_ns) AS tokenize_ns,
    coalesce(e.queue_ns, c.queue_ns) AS queue_ns,
    coalesce(e.prefill_ns, c.prefill_ns) AS prefill_ns,
    coalesce(e.first_decode_ns, c.first_decode_ns) AS first_decode_ns,
    coalesce(e.engine_decode_ns, c.engine_decode_ns) AS engine_decode_ns,
    coalesce(e.is_cold_start, c.is_cold_start) AS is_cold_start,
    CASE WHEN coalesce(c.ttft_attempt_ns, c.ttft_ns) < e.engine_ttft_ns
        THEN 0 ELSE coalesce(c.ttft_attempt_ns, c.ttft_ns) - e.engine_ttft_ns
    END AS network_ns
FROM client c
LEFT JOIN engine e ON e.call = c.call;
