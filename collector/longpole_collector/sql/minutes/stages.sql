-- Rows of some minutes of one file: workflows by the stages of their critical path, and in all ('').
WITH t AS NOT MATERIALIZED (
    SELECT
        trace_hi, trace_lo, start_ns // 60000000000 * 60000000000 AS minute_ns,
        service, route, prompt_version, wall_ns
    FROM trace_rows WHERE {near}
),
s AS NOT MATERIALIZED (
    SELECT minute_ns, service, route, prompt_version, '' AS stage, coalesce(wall_ns, 0) AS x
    FROM t
    UNION ALL BY NAME
    SELECT minute_ns, service, route, prompt_version, stage, critical_ns AS x
    FROM t JOIN (
        SELECT trace_hi, trace_lo, stage, critical_ns
        FROM trace_stage_rows WHERE day = '{day}' AND critical_ns > 0
    ) USING (trace_hi, trace_lo)
)
SELECT
    minute_ns,
    1 AS width,
    service, route, prompt_version, NULL::VARCHAR AS request_model,
    stage AS metric,
    NULL::INTEGER AS bucket,
    count(*) AS num,
    -- of values that no clock gives, as much as there is room for
    greatest(-9223372036854775807, least(9223372036854775807, sum(x)))::BIGINT AS sum_ns,
    0::DOUBLE AS min_ms,
    0::DOUBLE AS max_ms,
    true AS is_stage,
    false AS is_gone
FROM s
WHERE minute_ns IN ({minutes})
GROUP BY ALL
ORDER BY metric, minute_ns
