"""One side by the pivot program, the other from the pivot outward, again."""
