"""Words and sizes that Horovod's estimators name, and programs import from here."""

# The forms in which a column of a DataFrame is stored in the files.
ARRAY = "array"
CUSTOM_SPARSE = "custom_sparse_format"
NOCHANGE = "nochange"

METRIC_PRINT_FREQUENCY = 100
TOTAL_BUFFER_MEMORY_CAP_GIB = 4
BYTES_PER_GIB = 1 << 30
