"""Exact models for CP-SAT and for linear solvers.

Its size: five formulations for two kinds of solvers, each with its own rows; what they share is in
`formulations.common`.
"""
