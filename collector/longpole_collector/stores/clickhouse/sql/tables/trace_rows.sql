-- Workflows as they were last rolled up, each with its stages: they are replaced together.
CREATE TABLE {name} {on_cluster} (
    start_ns Int64 CODEC(Delta(8), T64, ZSTD(1)),
    wall_ns Int64 CODEC(T64, ZSTD(1)),
    end_lag_ns Int64 CODEC(T64, ZSTD(1)),
    end_ns Int64 ALIAS start_ns + wall_ns + end_lag_ns,
    root_name LowCardinality(String) CODEC(ZSTD(1)),
    num_spans Int64 CODEC(T64, ZSTD(1)),
    num_calls Int64 CODEC(T64, ZSTD(1)),
    num_tools Int64 CODEC(T64, ZSTD(1)),
    num_retries Int64 CODEC(T64, ZSTD(1)),
    long_pole LowCardinality(String) CODEC(ZSTD(1)),
    long_pole_ns Int64 CODEC(T64, ZSTD(1)),
    shape LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    stages Array(LowCardinality(String)) CODEC(ZSTD(1)),
    stages_critical_ns Array(Int64) CODEC(T64, ZSTD(1)),
    stages_rest_ns Array(Int64) CODEC(ZSTD(1)),
    stages_total_ns Array(Int64) ALIAS arrayMap((a, b) -> a + b, stages_critical_ns, stages_rest_ns),
    num_rows Int64 CODEC(T64, ZSTD(1)),
    rollup_version UInt32 CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    is_gone UInt8 DEFAULT 0,
    {columns}
    INDEX by_trace trace_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = {engine:version, is_gone}
PARTITION BY toDate(fromUnixTimestamp64Nano(toInt64(version)), 'UTC')
ORDER BY (intDiv(start_ns, 600000000000), trace_id, start_ns)
{ttl:version}
SETTINGS {settings}
