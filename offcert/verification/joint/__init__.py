"""Joint bounds, on moving and running again together, established again."""
