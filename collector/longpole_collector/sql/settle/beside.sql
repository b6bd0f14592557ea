-- Clients' spans that tell of the same call as an earlier one beside them, under one parent or both without any, then often in two traces: a second library's span, the rest of a stream, the next attempt.
WITH client AS NOT MATERIALIZED ( -- spans with one parent share a place; those without a parent share another
    SELECT
        key, place, start_ns, coalesce(end_ns, start_ns) AS end_ns, service, scope, operation,
        request_model, response_id, flags
    FROM model
    WHERE NOT is_engine
),
halved AS NOT MATERIALIZED ( -- a stream in two spans: when the first ended, when the second began
    -- 5 ms, as the library may read two clocks
    SELECT
        *, list_contains(flags, 'stream_summary') AS is_rest,
        CASE WHEN is_rest THEN start_ns + 5000000 ELSE end_ns END AS at_ns
    FROM client
    WHERE list_contains(flags, 'stream_head') OR list_contains(flags, 'stream_summary')
),
nested AS NOT MATERIALIZED ( -- as brackets: how many streams are open with this one
    SELECT
        *, is_rest::INT + sum(CASE WHEN is_rest THEN -1 ELSE 1 END) OVER (
            PARTITION BY service, scope, request_model, place
            ORDER BY at_ns, is_rest, key ROWS UNBOUNDED PRECEDING
        ) AS depth
    FROM halved
),
rest AS NOT MATERIALIZED ( -- the last stream that opened is the first to be told
    SELECT key, lag(key) OVER opened AS above
    FROM nested
    WINDOW opened AS (
        PARTITION BY service, scope, request_model, place, depth ORDER BY at_ns, is_rest, key
    )
    QUALIFY is_rest AND NOT lag(is_rest) OVER opened
        AND at_ns - lag(at_ns) OVER opened <= 60000000000
),
attempt AS NOT MATERIALIZED (
    SELECT key, lag(key) OVER siblings AS above
    FROM client
    WHERE place IS NOT NULL
    WINDOW siblings AS (
        PARTITION BY place, scope, operation, request_model ORDER BY start_ns, key
    )
    QUALIFY list_contains(lag(flags) OVER siblings, 'failed_attempt')
        AND lag(end_ns) OVER siblings <= start_ns
),
again AS NOT MATERIALIZED (
    SELECT key, lag(key) OVER told AS above
    FROM client
    WHERE response_id IS NOT NULL
    WINDOW told AS (PARTITION BY response_id, service, place ORDER BY start_ns, key)
    QUALIFY lag(scope) OVER told <> scope AND lag(end_ns) OVER told >= start_ns
),
pair AS NOT MATERIALIZED (
    SELECT *, 1 AS rank FROM rest
    UNION ALL SELECT *, 2 FROM attempt
    UNION ALL SELECT *, 3 FROM again
)
SELECT key, arg_min(above, rank) AS above
FROM pair
GROUP BY key
