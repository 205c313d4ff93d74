"""A training step as a problem: captured, timed on the device at hand or by a stated model."""
