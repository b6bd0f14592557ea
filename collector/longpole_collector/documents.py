"""Arrow tables as the JSON document of ``longpole.query/1``, for HTTP and the command line."""

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

SCHEMA = "longpole.query/1"


def query_document(table: pa.Table) -> dict[str, Any]:
    """``{"schema", "columns", "rows"}`` with plain JSON values; NaN and infinities are null."""
    columns = [
        [_plain(value) for value in column.to_pylist(maps_as_pydicts="strict")]
        for column in table.columns
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"schema": SCHEMA, "columns": table.column_names, "rows": rows}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
