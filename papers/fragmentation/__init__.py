"""What indivisible memory costs: schedules and addresses in one model."""
