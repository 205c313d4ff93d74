"""Steps of a search: each runs one method within its time and hands on what it found.

Its size: a file for each kind of step, which says what the step needs, how long it may take and
what it hands on when it is ended early.
"""
