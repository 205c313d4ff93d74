"""Engines of our own making, each with a fault that somebody has described in public, and mended.

In a file, ``step(mended)`` trains; it returns what it has computed. Comments say which lines the
audit has to name: ``# first`` and ``# second``, the accesses of the fault.
"""
