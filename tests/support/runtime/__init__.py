"""Captured steps, plans for them, simulated devices, and programs of several processes."""
