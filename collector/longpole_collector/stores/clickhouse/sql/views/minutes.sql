-- Calls and workflows counted by {width_name}, slice and size; counted when it is asked. What sampling
-- took out on the way here was counted there.
-- bucket is logarithmic with a width of 2 %; null holds zero and less. Counts and sums are whole
-- numbers, so those of several shards add up to what one server has.
WITH
    told AS (
        SELECT start_ns, service, route, prompt_version, request_model, metric, x
        FROM calls_lean
        ARRAY JOIN
            ['ttft_ms', 'tpot_ms', 'e2e_ms'] AS metric,
            [ttft_ms, tpot_ms, e2e_ms] AS x
        WHERE {near}
        UNION ALL
        SELECT
            start_ns, service, route, prompt_version,
            CAST(NULL AS LowCardinality(Nullable(String))) AS request_model,
            'wall_ms' AS metric,
            CAST(wall_ms AS Nullable(Float64)) AS x
        FROM traces
        WHERE {near}
    ),
    near AS (
        SELECT
            intDiv(start_ns, {width}) * {width} AS slot_ns,
            service, route, prompt_version, request_model, metric,
            assumeNotNull(x) AS ms,
            if(ms > 0, toInt32(ceil(ln(ms) / ln({gamma}))), 0) AS guess
        FROM told
        WHERE abs(x) < 1e12
    ),
    placed AS (
        SELECT
            slot_ns, service, route, prompt_version, request_model, metric, ms,
            multiIf(
                ms <= 0, NULL,
                ms <= pow({gamma}, guess - 1), toInt32(guess - 1),
                ms > pow({gamma}, guess), toInt32(guess + 1),
                toInt32(guess)
            ) AS place
        FROM near
    )
SELECT
    slot_ns AS start_ns,
    service, route, prompt_version, request_model, metric,
    place AS bucket,
    sum(n) AS num,
    sum(total_ns) / 1e6 AS sum_ms,
    min(least_ms) AS min_ms,
    max(most_ms) AS max_ms
FROM (
    SELECT
        slot_ns, service, route, prompt_version, request_model, metric, place,
        toInt64(count()) AS n,
        sum(toInt64(round(ms * 1e6))) AS total_ns,
        min(ms) AS least_ms,
        max(ms) AS most_ms
    FROM placed
    GROUP BY slot_ns, service, route, prompt_version, request_model, metric, place
    UNION ALL
    SELECT
        intDiv(start_ns, {width}) * {width} AS slot_ns,
        service, route, prompt_version, request_model, metric, bucket AS place,
        num AS n, sum_ns AS total_ns, min_ms AS least_ms, max_ms AS most_ms
    FROM gone_minute_rows FINAL
    WHERE NOT is_stage AND {near}
)
GROUP BY slot_ns, service, route, prompt_version, request_model, metric, place
