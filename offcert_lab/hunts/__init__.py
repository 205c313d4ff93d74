"""Searches for problems: the hardest for a method, the hardest to certify.

Its size: each hunt generates problems of its own, shrinks what it finds, and keeps it.
"""
