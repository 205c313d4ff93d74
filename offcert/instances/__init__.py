"""Generators of problems, reductions from partition problems, and the instance library."""
