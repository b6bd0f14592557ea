-- One row a workflow: where its wall time went in sum, and how it ended.
-- A trace that only tells again of another trace's call has no call of its own (flag call_elsewhere); what it knows better counts there.
WITH apart AS NOT MATERIALIZED ( -- a span that tells of another trace's call, and that call's span
    SELECT
        t.trace_hi, t.trace_lo, t.call_hi, t.call_lo, s.dialect = 'anthropic_sdk' AS is_native,
        s.input_tokens, s.cached_input_tokens, s.output_tokens,
        c.input_tokens AS kept_input, c.cached_input_tokens AS kept_cached,
        c.output_tokens AS kept_output
    FROM call_twins t
    JOIN span_rows s USING (trace_hi, trace_lo, span_id)
    JOIN span_rows c
        ON c.trace_hi = t.call_hi AND c.trace_lo = t.call_lo AND c.span_id = t.call_id
    WHERE t.call_hi <> t.trace_hi OR t.call_lo <> t.trace_lo
),
moved AS NOT MATERIALIZED ( -- what that changes in the two traces' sums
    SELECT
        trace_hi, trace_lo, 1 AS num_away, -input_tokens AS input_tokens,
        -cached_input_tokens AS cached_input_tokens, -output_tokens AS output_tokens
    FROM apart
    UNION ALL
    SELECT
        call_hi, call_lo, 0,
        CASE WHEN is_native OR kept_input IS NULL
            THEN input_tokens - coalesce(kept_input, 0)
        END,
        CASE WHEN is_native OR kept_cached IS NULL
            THEN cached_input_tokens - coalesce(kept_cached, 0)
        END,
        CASE WHEN is_native OR kept_output IS NULL
            THEN output_tokens - coalesce(kept_output, 0)
        END
    FROM apart
),
change AS NOT MATERIALIZED (
    SELECT
        trace_hi, trace_lo, sum(num_away)::BIGINT AS num_away,
        sum(input_tokens)::BIGINT AS more_input, sum(cached_input_tokens)::BIGINT AS more_cached,
        sum(output_tokens)::BIGINT AS more_output
    FROM moved
    GROUP BY trace_hi, trace_lo
)
SELECT
    trace_hex(trace_hi, trace_lo) AS trace_id, -- trace id, 32 hex digits
    start_ns, -- start of the root, Unix epoch, ns
    end_ns, -- end of the root, Unix epoch, ns
    wall_ns, -- end - start, ns; the critical times of its stages sum to it exactly
    wall_ns / 1e6 AS wall_ms, -- the same in ms
    root_name, -- name of the root span
    service, -- service of the root
    route, -- route id
    route_version, -- route version
    prompt_version, -- prompt version, when all calls share one
    slo_class, -- task class
    outcome, -- accepted, rejected, failed; null is unknown, not success
    failure_class, -- kind of failure
    time_to_useful_ns / 1e6 AS time_to_useful_ms, -- root start to first useful output, ms
    time_to_accepted_ns / 1e6 AS time_to_accepted_ms, -- root start to acceptance, ms
    num_spans, -- spans received
    num_calls - coalesce(num_away, 0) AS num_calls, -- model calls, each counted once
    num_tools, -- tool calls
    num_retries, -- attempts beyond the first of each call
    CASE WHEN num_calls > coalesce(num_away, 0)
        THEN coalesce(input_tokens + more_input, input_tokens, more_input)
    END AS input_tokens, -- sum over calls; null if none is known
    CASE WHEN num_calls > coalesce(num_away, 0)
        THEN coalesce(cached_input_tokens + more_cached, cached_input_tokens, more_cached)
    END AS cached_input_tokens, -- sum over calls; null if unknown
    CASE WHEN num_calls > coalesce(num_away, 0)
        THEN coalesce(output_tokens + more_output, output_tokens, more_output)
    END AS output_tokens, -- sum over calls; null if none is known
    cost_usd, -- sum over calls; null while no price is known
    long_pole, -- stage with most critical time
    long_pole_ns, -- that time, ns
    long_pole_ns / 1e6 AS long_pole_ms, -- that time, ms
    shape, -- latency shape; null while not classified
    CASE WHEN num_away > 0 THEN list_append(flags, 'call_elsewhere') ELSE flags END AS flags -- data-quality marks of the trace
FROM trace_rows
LEFT JOIN change USING (trace_hi, trace_lo)
