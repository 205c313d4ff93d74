"""Splits: in which parts and by which algorithms a training step is computed."""
