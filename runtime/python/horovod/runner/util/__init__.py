"""Helpers that scripts import under these names."""
