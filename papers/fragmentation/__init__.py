"""The cost of indivisible memory: schedules and addresses in one model."""
