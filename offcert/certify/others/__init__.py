"""Plans that others make, as executions and schedules of ours."""
