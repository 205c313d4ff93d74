"""Of each question the problem, the answer, their files, the checker and the simulator."""
