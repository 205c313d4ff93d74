"""The stage view: a network as a chain of stages, as the papers' algorithms take it."""
