"""Lower bounds, and methods that are exact, by family.

Those in `combinatorial` are computed. `labels` holds our own searches, `models` what CP-SAT and
linear solvers are given, and `fluid` programs in which transfers may pause. `common` is shared.

Its size: every exact statement of the problem is kept on two solvers or more, since a bound that
only one of them claims is an attested one.
"""
