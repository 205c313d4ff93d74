"""Least peak memory by recomputation on graphs: exact models, a search and a bound of our own."""
