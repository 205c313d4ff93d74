"""Following a plan while the user's program trains, and accounts of how far it was followed.

Its size: each operation's bytes are counted against the plan in the steps that have to be counted,
every deviation is named with its bytes, and steps that are not counted must cost nearly nothing.
"""
