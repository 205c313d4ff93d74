"""Searches from both ends: tensors leave before an operation, and return from it on.

Its size: one side alone and two sides that must move the same tensors are searched in compiled code
of their own, and their orders of transfers are made into plans.
"""
