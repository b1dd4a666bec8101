"""Names of Databricks' HorovodEstimator."""
