-- Workflows counted by hour, slice and stage: the rows of the view stage_minutes, merged.
SELECT
    start_ns, -- start of the hour, Unix epoch, ns
    service, -- service of the workflow's root
    route, -- route id
    prompt_version, -- prompt version
    nullif(metric, '') AS stage, -- stage name; null is the whole workflow
    num, -- workflows that had the stage on their critical path
    sum_ns AS critical_ns, -- sum of their times on the critical path in it, ns
    sum_ns / 1e6 AS critical_ms -- the same in ms
FROM minute_rows
WHERE width = -60
