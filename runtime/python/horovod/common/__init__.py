"""This package is what all fronts share: the binding to libhvd, the job's identity, process sets, exceptions."""
