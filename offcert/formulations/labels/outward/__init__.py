"""From the pivot outward: which tensors are absent during it, and how little the link must rest."""
