"""A plan as training follows it: events and bytes, where copies lie on the host, what to expect."""
