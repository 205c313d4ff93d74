"""Searches for plans in which computations run again and tensors leave the device.

In which order to read, and what goes from one module to the next::

    tables      a problem as arrays (`Tables`), once; carrying: what training really holds
    state       a program and what may not leave, as arrays (`JointState`), and scratch
    unrolling   JointState -> the runs; events: what training holds beside their uses
    lives       runs -> bytes during each run, and the gaps over the turn
    evaluation  gaps -> which leave, in which order, how long it all takes; the value of a state
    annealing   random changes (segments, repeats are parts of them) and values, in batches
    parts       a network between the cuts where segments may end; nested: segments inside of
                segments, by a dynamic program over these
    starts      states to begin with; plans: from a state to an execution with a checked schedule
    search      least time: coolings from several starts; sinking: least memory

Words:

segment
    Computations from a first to a last one that are thrown away and run again in the backward pass.
line
    A segment whose calls the user's own code makes, one after another.
kept
    Said of a computation in a segment: its results stay, so it does not run again.
turn
    The first run that cannot run again. What leaves does so before it, and returns after it.
gap
    A value between two runs that use it, the turn between them: it may be absent there.
row, column
    `Scratch.facts` holds nine numbers about the last state that was looked at, by column.

Its size: the search values some hundred thousand plans a second, so the simulator, the lives of
tensors and all changes exist as compiled code on arrays, beside the objects that they are made of.
"""
