"""Exact models and methods, and their relaxations; one file each."""
