"""Selections: which values of a graph are stored, the others being computed again."""
