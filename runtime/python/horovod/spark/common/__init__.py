"""What the Spark estimators share: stores, data sets, the reader of exact epochs, parameters and backends.

Nothing is imported here: ranks import the reader, which needs no Spark.
"""
