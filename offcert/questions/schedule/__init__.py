"""Schedules: when to move and to compute, for a trace on a platform.

Its size: the schedule is checked in two ways that share nothing (event by event, and simulated),
for transfers that are atomic, interruptible or fractional and for links of every kind.
"""
