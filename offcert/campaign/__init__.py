"""Campaigns: many problems, limits and methods beside the certified optimum, in one table."""
