"""Hooks in a user's program: modules, gradients, tensors that autograd saves, live storages."""
