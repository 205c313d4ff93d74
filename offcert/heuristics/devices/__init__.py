"""Schedules for several devices: rules for who uses the link next, and a search over orders."""
