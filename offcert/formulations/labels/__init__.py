"""Searches over labels of our own, without a solver.

`offcert.verify` states the same rules a second time, on purpose: what checks a proof shares no code
with what finds it.
"""
