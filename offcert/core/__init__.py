"""What every question is about, and nothing of any single one: numpy only, no solver, no torch."""
