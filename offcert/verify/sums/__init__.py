"""Exact sums where most has to be absent, gone through again."""
