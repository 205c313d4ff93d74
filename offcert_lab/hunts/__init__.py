"""Searches for problems: the hardest for a method, the hardest to certify."""
