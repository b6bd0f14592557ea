-- How many spans of another table were seen to begin in each minute: what is read again when it
-- has more.
CREATE TABLE {name} {on_cluster} (
    minute Int64,
    num UInt64,
    version UInt64 DEFAULT toUnixTimestamp64Nano(now64(9))
)
ENGINE = {engine:version}
ORDER BY minute
SETTINGS {settings}
