-- The data-quality ledger: one row per service and dialect, with the share of its model calls that lack a fact, and why.
-- Ratios are 0..1, null where nothing counts: TTFT is asked of streamed calls, a finish reason and output tokens of all but embeddings. reasons lists lack, reason and number of calls, most calls first; not_sent means that nothing but the sender's library is to blame. For a window of time aggregate calls itself.
WITH told AS NOT MATERIALIZED (
    SELECT
        service, dialect,
        operation IS DISTINCT FROM 'embeddings' AS is_answered,
        is_streamed AND is_answered AS is_asked_ttft,
        is_asked_ttft AND ttft_ms IS NULL AS no_ttft,
        is_asked_ttft AND ttft_ms IS NOT NULL
            AND list_contains(flags, 'ttft_first_event') AS weak_ttft,
        input_tokens IS NULL OR (output_tokens IS NULL AND is_answered) AS no_usage,
        NOT no_usage AND list_contains(flags, 'tokens_estimated') AS weak_usage,
        cost_usd IS NULL AS no_price,
        parent_id IS NULL AS no_parent,
        is_answered AND finish_reason IS NULL AS no_finish,
        CASE
            WHEN error_type IS NOT NULL THEN 'error'
            WHEN stream_state IN ('closed_early', 'abandoned', 'error') THEN stream_state
            WHEN list_contains(flags, 'incomplete') THEN 'incomplete'
            WHEN list_contains(flags, 'truncated') THEN 'truncated'
            WHEN end_ns IS NULL THEN 'unfinished'
            WHEN list_contains(flags, 'engine_side') THEN 'engine_side'
            ELSE 'not_sent'
        END AS cause,
        CASE
            WHEN coalesce(response_model, request_model) IS NULL THEN 'no_model'
            WHEN no_usage THEN 'no_usage'
            ELSE 'not_priced'
        END AS price_cause,
        CASE WHEN list_contains(flags, 'ttft_after_headers')
            THEN 'ttft_after_headers' ELSE cause
        END AS ttft_cause
    FROM calls
),
alike AS MATERIALIZED (
    SELECT
        service, dialect, cause, price_cause, ttft_cause, count(*) AS num_calls,
        count_if(is_asked_ttft) AS num_streamed, count_if(is_answered) AS num_answered,
        count_if(no_ttft) AS no_ttft, count_if(weak_ttft) AS weak_ttft,
        count_if(no_usage) AS no_usage, count_if(weak_usage) AS weak_usage,
        count_if(no_price) AS no_price, count_if(no_parent) AS no_parent,
        count_if(no_finish) AS no_finish
    FROM told
    GROUP BY ALL
),
lacking AS NOT MATERIALIZED (
    SELECT service, dialect, lack.lack, lack.reason, sum(lack.num_calls)::BIGINT AS num_calls
    FROM (
        SELECT service, dialect, unnest([
            {'lack': 'ttft', 'reason': ttft_cause, 'num_calls': no_ttft},
            {'lack': 'ttft_content', 'reason': 'ttft_first_event', 'num_calls': weak_ttft},
            {'lack': 'usage', 'reason': cause, 'num_calls': no_usage},
            {'lack': 'usage_counted', 'reason': 'tokens_estimated', 'num_calls': weak_usage},
            {'lack': 'price', 'reason': price_cause, 'num_calls': no_price},
            {'lack': 'parent', 'reason': 'root', 'num_calls': no_parent},
            {'lack': 'finish', 'reason': cause, 'num_calls': no_finish}
        ]) AS lack
        FROM alike
    )
    WHERE lack.num_calls > 0
    GROUP BY ALL
),
why AS NOT MATERIALIZED (
    SELECT
        service, dialect,
        list({'lack': lack, 'reason': reason, 'num_calls': num_calls}
            ORDER BY num_calls DESC, lack, reason) AS reasons
    FROM lacking
    GROUP BY service, dialect
),
ledger AS NOT MATERIALIZED (
    SELECT
        service, dialect, sum(num_calls)::BIGINT AS num_calls,
        sum(num_streamed)::BIGINT AS num_streamed,
        sum(no_ttft) / nullif(sum(num_streamed), 0) AS no_ttft,
        sum(weak_ttft) / nullif(sum(num_streamed), 0) AS weak_ttft,
        sum(no_usage) / sum(num_calls) AS no_usage,
        sum(weak_usage) / sum(num_calls) AS weak_usage,
        sum(no_price) / sum(num_calls) AS no_price,
        sum(no_parent) / sum(num_calls) AS no_parent,
        sum(no_finish) / nullif(sum(num_answered), 0) AS no_finish
    FROM alike
    GROUP BY service, dialect
)
SELECT
    l.service AS service, -- service.name
    l.dialect AS dialect, -- which reader understood the calls' spans
    l.num_calls AS num_calls, -- model calls
    l.num_streamed AS num_streamed, -- those known to be streamed
    l.no_ttft AS no_ttft_ratio, -- of the streamed calls, those without TTFT
    l.weak_ttft AS weak_ttft_ratio, -- of the streamed calls, those whose TTFT stops at the first event, which may be empty
    l.no_usage AS no_usage_ratio, -- calls without input or output tokens
    l.weak_usage AS weak_usage_ratio, -- calls whose tokens the library counted by itself
    l.no_price AS no_price_ratio, -- calls without cost
    l.no_parent AS no_parent_ratio, -- calls that are a trace's root: no workflow or step around them is known
    l.no_finish AS no_finish_ratio, -- of the calls that answer, those without finish reason
    coalesce(w.reasons, []) AS reasons -- list of lack (ttft, ttft_content, usage, usage_counted, price, parent, finish), reason, num_calls
FROM ledger l
LEFT JOIN why w ON w.service IS NOT DISTINCT FROM l.service AND w.dialect = l.dialect
ORDER BY l.num_calls DESC, l.service, l.dialect
