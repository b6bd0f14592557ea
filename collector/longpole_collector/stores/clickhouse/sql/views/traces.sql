-- One row a workflow: where its wall time went in sum, and how it ended.
SELECT {columns} FROM trace_rows FINAL
