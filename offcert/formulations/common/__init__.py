"""Functions that several formulations need.

Its size: grids that round in the safe direction, and solvers whose words are read with care:
interrupted, out of time, infeasible within tolerances.
"""
