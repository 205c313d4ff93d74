"""Generators of problems, reductions from partition problems, and the instance library.

Its size: generators with known optima, the reductions of the hardness proofs, and a library with a
record and a proof for each entry.
"""
