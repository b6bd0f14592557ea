-- The stages of each workflow; per trace sum(critical_ms) = wall_ms.
SELECT
    trace_hex(trace_hi, trace_lo) AS trace_id, -- trace id, 32 hex digits
    stage, -- stage name
    critical_ns, -- time on the critical path, ns
    critical_ns / 1e6 AS critical_ms, -- the same in ms
    total_ns, -- own time of all spans of the stage, on the path or off, ns
    total_ns / 1e6 AS total_ms -- the same in ms
FROM trace_stage_rows
