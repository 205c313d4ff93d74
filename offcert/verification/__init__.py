"""Claims computed again, with code that finds nothing and that no finder uses.

Its size: it states every argument a second time without one line of the finders, in exact
arithmetic, for each kind of proof and for the answers of five questions.
"""
