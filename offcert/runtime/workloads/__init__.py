"""Workloads: a model, its input and its loss, and training steps like those of the papers."""
