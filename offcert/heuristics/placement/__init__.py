"""Addresses for residences: what is done in practice, and a search of our own.

Each gives a valid placement, whatever the capacity: whether its pool is small enough is for the
caller to see.
"""
