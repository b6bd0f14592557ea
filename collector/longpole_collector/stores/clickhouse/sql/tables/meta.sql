-- What is known of the tables themselves: the schema's version, how far another table was read.
CREATE TABLE {name} {on_cluster} (
    key String,
    value String,
    version UInt64 DEFAULT toUnixTimestamp64Nano(now64(9))
)
ENGINE = {engine:version}
ORDER BY key
SETTINGS {settings}
