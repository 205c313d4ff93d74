"""The search for schedules and bounds.

Its size: a search is interruptible at any moment, keeps the best found, and runs in processes that
may hang or die; and the same engine answers five questions.
"""
