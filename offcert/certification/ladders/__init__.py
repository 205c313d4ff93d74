"""The ladders as data, a file for each question: which method runs when, how long, and why."""
