-- One row a workflow: where its wall time went in sum, and how it ended.
-- A trace that only tells again of another trace's call has no call of its own (flag call_elsewhere); what it knows better counts there.
SELECT
    trace_hex(trace_hi, trace_lo) AS trace_id, -- trace id, 32 hex digits
    start_ns, -- start of the root, Unix epoch, ns
    end_ns, -- end of the root, Unix epoch, ns
    wall_ns, -- end - start, ns; the critical times of its stages sum to it exactly
    wall_ns / 1e6 AS wall_ms, -- the same in ms
    root_name, -- name of the root span
    service, -- service of the root
    route, -- route id
    route_version, -- route version
    prompt_version, -- prompt version, when all calls share one
    slo_class, -- task class
    outcome, -- accepted, rejected, failed; null is unknown, not success
    failure_class, -- kind of failure
    time_to_useful_ns / 1e6 AS time_to_useful_ms, -- root start to first useful output, ms
    time_to_accepted_ns / 1e6 AS time_to_accepted_ms, -- root start to acceptance, ms
    num_spans, -- spans received
    num_calls, -- model calls, each counted once
    num_tools, -- tool calls
    num_retries, -- attempts beyond the first of each call
    input_tokens, -- sum over calls; null if none is known
    cached_input_tokens, -- sum over calls; null if unknown
    output_tokens, -- sum over calls; null if none is known
    cost_usd, -- sum over calls, by the prices in force when it was last computed; null if one of them has no cost, or there is none
    long_pole, -- stage with most critical time
    long_pole_ns, -- that time, ns
    long_pole_ns / 1e6 AS long_pole_ms, -- that time, ms
    shape, -- latency shape; null while not classified
    flags, -- data-quality marks of the trace
    coalesce(weight, 1.0) AS weight -- how many workflows it stands for: more than 1 where they were sampled
FROM trace_rows
