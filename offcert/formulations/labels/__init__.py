"""Searches over labels of our own, without a solver.

`offcert.verification` states the same rules a second time, on purpose: what checks a proof shares
no code with what finds it.

Its size: these searches close what no solver closes, in compiled code on plain arrays, and each
records a proof that can be verified without searching again.
"""
