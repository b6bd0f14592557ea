-- Every span as its reader understood it; what was not recognised is in attributes.
SELECT {spans} FROM span_rows
