-- Workflows counted by {unit}, slice and stage: the mean time that a stage takes of any merger of rows, without reading workflows.
-- Counts and times add up; the row without a stage counts all workflows of the slice, also those that were in none. A minute comes when it is over, and anew some time after a late span.
SELECT
    start_ns, -- start of the {unit}, Unix epoch, ns
    service, -- service of the workflow's root
    route, -- route id
    prompt_version, -- prompt version
    nullif(metric, '') AS stage, -- stage name; null is the whole workflow
    num, -- workflows that had the stage on their critical path
    sum_ns AS critical_ns, -- sum of their times on the critical path in it, ns
    sum_ns / 1e6 AS critical_ms -- the same in ms
FROM minute_rows
WHERE width = {num_minutes} AND is_stage AND NOT is_gone
