"""Hooks in a user's program: modules, gradients, tensors that autograd saves, live storages.

Its size: a hook that fails must never end or change a user's training, and hooks of others, sharded
parameters, foreign modes and blocks on the host have to be told from our own.
"""
