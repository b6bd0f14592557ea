-- Model calls, each once, as they were last settled: the rows of the view calls, times in nanoseconds.
-- An answer's id is its span's, unless several spans tell of the call: only then it is here.
-- A row of a later version replaces one of the same call; is_gone takes it away.
CREATE TABLE {name} {on_cluster} (
    start_ns Int64 CODEC(Delta(8), T64, ZSTD(1)),
    length_ns Nullable(Int64) CODEC(T64, ZSTD(1)),
    end_ns Nullable(Int64) ALIAS start_ns + length_ns,
    other_response_id Nullable(String) CODEC(ZSTD(1)),
    first_chunk_lag_ns Nullable(Int64) CODEC(T64, ZSTD(1)),
    first_chunk_ns Nullable(Int64) ALIAS coalesce(ttft_ns, 0) - first_chunk_lag_ns,
    decode_ns Nullable(Int64) CODEC(T64, ZSTD(1)),
    tail_ns Nullable(Int64) CODEC(T64, ZSTD(1)),
    network_ns Nullable(Int64) CODEC(T64, ZSTD(1)),
    price_version LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    is_gone UInt8 DEFAULT 0,
    {columns}
    INDEX by_trace trace_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = {engine:version, is_gone}
PARTITION BY toDate(fromUnixTimestamp64Nano(toInt64(version)), 'UTC')
ORDER BY (intDiv(start_ns, 600000000000), trace_id, start_ns, span_id)
{ttl:version}
SETTINGS {settings}
