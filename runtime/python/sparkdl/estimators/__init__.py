"""Names of sparkdl's estimators."""
