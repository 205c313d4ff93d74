"""Exact models for CP-SAT and for linear solvers."""
