-- Calls and workflows counted by hour, slice and size: the rows of the view minutes, merged.
SELECT
    start_ns, -- start of the hour, Unix epoch, ns
    service, -- service of the call, or of the workflow's root
    route, -- route id
    prompt_version, -- prompt version
    request_model, -- model asked for; null for a workflow
    metric, -- ttft_ms, tpot_ms, e2e_ms of calls; wall_ms of workflows
    bucket, -- logarithmic bucket of width 2 %; null holds zero and less
    num, -- calls or workflows
    sum_ns / 1e6 AS sum_ms, -- sum of their values, ms
    min_ms, -- smallest, ms
    max_ms -- largest, ms
FROM minute_rows
WHERE width = 60
