"""Costs of checkpoints on a chain: in the papers' memory models, and on a device."""
