"""What is asked: the problem, the answer, files and checker of each question."""
