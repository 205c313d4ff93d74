"""Both sides of a cut, from the pivot outward, searched again."""
