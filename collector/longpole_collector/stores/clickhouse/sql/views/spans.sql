-- Every span as its reader understood it; what was not recognised is in attributes.
SELECT {columns} FROM span_rows FINAL
