-- Calls and workflows that sampling took out before they came here, counted by minute, slice and size
-- as the views of minutes count those that are here. A sender says of a minute what it took out of
-- it so far: what it says later replaces that.
CREATE TABLE {name} {on_cluster} (
    start_ns Int64 CODEC(Delta(8), ZSTD(1)),
    sender LowCardinality(String),
    service LowCardinality(Nullable(String)),
    route LowCardinality(Nullable(String)),
    prompt_version LowCardinality(Nullable(String)),
    request_model LowCardinality(Nullable(String)),
    metric LowCardinality(String),
    bucket Nullable(Int32),
    is_stage Bool,
    num Int64 CODEC(T64, ZSTD(1)),
    sum_ns Int64 CODEC(ZSTD(1)),
    min_ms Float64 CODEC(ZSTD(1)),
    max_ms Float64 CODEC(ZSTD(1)),
    version UInt64 DEFAULT toUnixTimestamp64Nano(now64(9)) CODEC(Delta(8), ZSTD(1))
)
ENGINE = {engine:version}
PARTITION BY toDate(fromUnixTimestamp64Nano(toInt64(version)), 'UTC')
ORDER BY (start_ns, is_stage, metric, sender, service, route, prompt_version, request_model, bucket)
{ttl:version}
SETTINGS {settings}, allow_nullable_key = 1
