"""A plan as training follows it: events and bytes, where copies lie on the host, what to expect.

Its size: one certificate becomes tables for each device, a layout of the host's memory, and a
forecast with which every step is compared.
"""
