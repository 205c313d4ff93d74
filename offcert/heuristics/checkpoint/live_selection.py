"""The checkpoints with which a chain takes the fewest live bytes: ours, exact, O(n²), compiled.

The papers' models count data and gradients. What a device holds is more precise: a forward pass
holds two neighbouring data and a workspace; running a segment again holds the gradient that comes
from the right; stages keep more than their output; operations have workspaces; the last segment
need not run again. All of that concerns one segment and the checkpoints before it, so the least
peak follows from the same recursion as the paper's (13):

``M(h) = min over i of max(a_h + M(i), L(h, i))``, ``M(0)`` is the answer,

with ``L(h, i)`` the most bytes beside the checkpoints before `h` while the stages from `h` on and
below `i` run forward, again, or backward, all others being done or to come.
"""

from __future__ import annotations

import numpy as np

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.compiled import plain
from offcert.heuristics.checkpoint.sizes import Integers, Selection, path, size_array

# Rows of the numbers of stages.
EXTRA, FORWARD, BACKWARD = 0, 1, 2


def live_selection(chain: CheckpointChain) -> Selection:
    """Return the checkpoints of least live bytes.

    Parameters
    ----------
    chain : CheckpointChain
        Its stages from one checkpoint to the next run again together, as
        `offcert.formulations.checkpoint.live.checkpoint_program` says.

    Returns
    -------
    Selection
        Its memory is the peak of that program's trace, exactly: no other set of checkpoints has
        a lower one. Segments inside of segments may do with less.

    Raises
    ------
    InputError
        If the sizes sum to 2**60 bytes or more.
    """
    outputs, gradients = size_array(chain.output), size_array(chain.gradient, "gradients")
    stages = np.array([chain.extra, chain.forward_workspace, chain.backward_workspace], np.int64)
    following = np.zeros(len(outputs), np.int64)
    memory = np.zeros(len(outputs), np.int64)
    least_live(outputs, gradients, stages, memory, following)
    return Selection(path(following), int(memory[0]))


@plain
def least_live(
    outputs: Integers, gradients: Integers, stages: Integers, memory: Integers, following: Integers
) -> None:
    """Write ``M(h)`` and the next checkpoint after each `h`; ``M`` of the output is 0."""
    last = len(outputs) - 1
    memory[last] = 0
    for h in range(last - 1, -1, -1):
        # What is there once the stages so far have run and kept everything.
        held = outputs[h]
        first_run, again, backward, least = 0, 0, 0, -1
        for i in range(h + 1, last + 1):
            k = i - 1
            held += outputs[i] + stages[EXTRA, k]
            passing = outputs[h] + outputs[i] + stages[FORWARD, k]
            if k > h:
                passing += outputs[k]
            first_run = max(first_run, passing)
            again = max(again, held + stages[FORWARD, k])
            backward = max(backward, held + gradients[i] + gradients[k] + stages[BACKWARD, k])
            if i == last:
                # What runs last forward is needed first: it keeps everything at once.
                own = max(again, backward)
            elif i == h + 1 and stages[EXTRA, h] == 0:
                # Nothing of it is missing.
                own = max(first_run, backward)
            else:
                own = max(first_run, again + gradients[i], backward)
            needed = own if i == last else max(own, outputs[h] + memory[i])
            if least < 0 or needed < least:
                least, following[h] = needed, i
        memory[h] = least
