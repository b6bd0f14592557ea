-- The rows of some minutes of one file: calls by their times, workflows by their wall time.
WITH c AS NOT MATERIALIZED (
    SELECT
        start_ns, service, route, prompt_version, request_model,
        coalesce(ttft_ns, CASE WHEN is_engine THEN engine_ttft_ns END) / 1e6 AS ttft_ms,
        tpot_ms,
        not_negative(end_ns - start_ns) / 1e6 AS e2e_ms
    FROM span_rows WHERE call_role = 1 AND {near}
    UNION ALL BY NAME
    SELECT
        start_ns, service, route, prompt_version, request_model,
        ttft_ns / 1e6 AS ttft_ms,
        tpot_ms,
        not_negative(end_ns - start_ns) / 1e6 AS e2e_ms
    FROM call_rows WHERE {near}
    UNION ALL BY NAME
    SELECT start_ns, service, route, prompt_version, wall_ns / 1e6 AS wall_ms
    FROM trace_rows WHERE {near}
)
SELECT
    start_ns // 60000000000 * 60000000000 AS minute_ns,
    1 AS width,
    service, route, prompt_version, request_model, metric,
    log_bucket(x) AS bucket,
    count(*) AS num,
    -- of values that no clock gives, as much as there is room for
    greatest(
        -9223372036854775807, least(9223372036854775807, sum(round(x * 1e6)::HUGEINT))
    )::BIGINT AS sum_ns,
    min(x) AS min_ms,
    max(x) AS max_ms,
    false AS is_stage,
    false AS is_gone
FROM (UNPIVOT c ON ttft_ms, tpot_ms, e2e_ms, wall_ms INTO NAME metric VALUE x)
WHERE abs(x) < 1e12 AND minute_ns IN ({minutes})
GROUP BY ALL
ORDER BY metric, minute_ns
