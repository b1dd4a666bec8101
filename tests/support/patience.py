"""The one limit of every wait in the tests: what takes longer hangs. It measures nothing, so a slow machine fails no test."""

PATIENCE = 600  # seconds
