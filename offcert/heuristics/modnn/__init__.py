"""The algorithms of the moDNN paper: bounds on memory, sub-batches, schedules with addresses."""
