"""Answers found the slow way, by code that shares nothing with what is tested."""
