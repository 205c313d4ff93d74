"""Multipliers of facts about executions in which computations run again, in integers."""
