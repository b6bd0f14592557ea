-- The stages of each workflow; per trace sum(critical_ms) = wall_ms.
SELECT
    trace_id,
    CAST(stage AS String) AS stage,
    critical_ns,
    critical_ns / 1e6 AS critical_ms,
    total_ns,
    total_ns / 1e6 AS total_ms
FROM trace_rows FINAL
ARRAY JOIN
    stages AS stage,
    stages_critical_ns AS critical_ns,
    stages_total_ns AS total_ns
