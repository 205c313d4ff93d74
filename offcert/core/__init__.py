"""The problem and its answers: numpy only, no solver, no torch."""
