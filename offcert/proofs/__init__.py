"""Certificates: their format, and a type for every kind of proof.

Its size: a type, a file format and one sentence for each wrong field, for every kind of proof and
for the certificates of four questions.
"""
