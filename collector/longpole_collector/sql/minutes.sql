-- Calls and workflows counted by {unit}, slice and size: quantiles of any merger of rows to within 1 %, without reading calls.
-- Counts of rows with the same bucket add up; log_value(bucket) at rank ceil(q * sum(num)) in order of bucket is the quantile. A minute comes when it is over, and anew some time after a late span.
SELECT
    start_ns, -- start of the {unit}, Unix epoch, ns
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
WHERE width = {num_minutes} AND NOT is_stage AND NOT is_gone
