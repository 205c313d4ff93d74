"""Verification: every claim of a certificate is computed again, by code that no search uses.

Its size: it states every argument a second time without one line of the finders, in exact
arithmetic, for each kind of proof and for the answers of five questions.
"""
