"""When to move and compute: a trace on a platform, and schedules for it."""
