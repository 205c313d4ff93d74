"""Segments: parts of a user's model that run again in the backward pass, under checkpointing."""
