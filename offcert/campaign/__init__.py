"""Campaigns: many problems, limits and methods beside the certified optimum, in one table.

Its size: a comparison may run for days: cells are kept as they come, continue after an
interruption, and are never measured beside each other unless that is asked for.
"""
