-- Workflows counted by {width_name}, slice and stage; counted when it is asked.
-- The row without a stage counts all workflows of the slice, also those that were in none.
WITH
    told AS (
        SELECT
            intDiv(start_ns, {width}) * {width} AS slot_ns,
            service, route, prompt_version,
            CAST(NULL AS Nullable(String)) AS part,
            1 AS n,
            wall_ns AS length_ns
        FROM trace_rows FINAL
        WHERE {near}
        UNION ALL
        SELECT
            intDiv(start_ns, {width}) * {width} AS slot_ns,
            service, route, prompt_version,
            CAST(one_stage AS Nullable(String)) AS part,
            1 AS n,
            one_ns AS length_ns
        FROM trace_rows FINAL
        ARRAY JOIN stages AS one_stage, stages_critical_ns AS one_ns
        WHERE one_ns > 0 AND {near}
        UNION ALL
        SELECT
            intDiv(start_ns, {width}) * {width} AS slot_ns,
            service, route, prompt_version,
            CAST(nullIf(metric, '') AS Nullable(String)) AS part,
            num AS n,
            sum_ns AS length_ns
        FROM gone_minute_rows FINAL
        WHERE is_stage AND {near}
    )
SELECT
    slot_ns AS start_ns,
    service, route, prompt_version,
    part AS stage,
    toInt64(sum(n)) AS num,
    sum(length_ns) AS critical_ns,
    sum(length_ns) / 1e6 AS critical_ms
FROM told
GROUP BY slot_ns, service, route, prompt_version, part
