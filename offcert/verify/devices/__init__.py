"""Certificates for several devices: their schedules checked, their bounds established again."""
