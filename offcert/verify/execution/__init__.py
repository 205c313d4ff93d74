"""Verification of executions: whether a trace does what its network says."""
