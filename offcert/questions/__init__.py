"""Of each question the problem, the answer, their files, the checker and the simulator.

Its size: five questions, each with its problem, answer, files and a checker of its own.
"""
