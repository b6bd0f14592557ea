-- Calls and workflows counted by {width_name}, slice and size; counted when it is asked.
-- bucket is logarithmic with a width of 2 %; null holds zero and less. Counts and sums are whole
-- numbers, so those of several shards add up to what one server has.
WITH
    told AS (
        SELECT start_ns, service, route, prompt_version, request_model, metric, x
        FROM calls_lean
        ARRAY JOIN
            ['ttft_ms', 'tpot_ms', 'e2e_ms'] AS metric,
            [ttft_ms, tpot_ms, e2e_ms] AS x
        UNION ALL
        SELECT
            start_ns, service, route, prompt_version,
            CAST(NULL AS LowCardinality(Nullable(String))) AS request_model,
            'wall_ms' AS metric,
            CAST(wall_ms AS Nullable(Float64)) AS x
        FROM traces
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
    toInt64(count()) AS num,
    sum(toInt64(round(ms * 1e6))) / 1e6 AS sum_ms,
    min(ms) AS min_ms,
    max(ms) AS max_ms
FROM placed
GROUP BY slot_ns, service, route, prompt_version, request_model, metric, place
