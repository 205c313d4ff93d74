"""The stage view: a network as a line of stages, as the papers' algorithms take it, replayed."""
