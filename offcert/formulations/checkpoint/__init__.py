"""What a set of checkpoints on a chain costs: in the papers' memory models, and on a device."""
