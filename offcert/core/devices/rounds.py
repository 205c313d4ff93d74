"""Sub-batches on every device: rounds one after the other as one trace."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.errors import InputError
from offcert.core.trace import Operation, Tensor, Trace


def joined(rounds: Sequence[Trace]) -> Trace:
    """Return rounds of a step as one trace, in their order.

    Gradients of all rounds but the last are added up on the device, so only the last one's are
    sent (moDNN, §6.2). Between rounds nothing is on the device but what stays all the time.

    Parameters
    ----------
    rounds : sequence of Trace
        At least one. A tensor that is there at a round's start must stay until its end, and be
        there, with the same name and size, in every round.

    Raises
    ------
    InputError
        If rounds share more than that.
    """
    if not rounds:
        raise InputError("there must be at least one round")
    stay = [_staying(trace) for trace in rounds]
    if any(each != stay[0] for each in stay):
        raise InputError("what stays on the device must be the same in every round")
    operations: list[Operation] = []
    tensors: list[Tensor] = []
    for number, trace in enumerate(rounds):
        offset = len(operations)
        operations += [
            Operation(f"{number}: {each.name}", each.duration, each.workspace)
            for each in trace.operations
        ]
        tensors += [
            Tensor(
                f"{number}: {tensor.name}",
                tensor.size,
                tuple(offset + use for use in tensor.uses),
                tensor.evictable,
            )
            for tensor in trace.tensors
            if tensor.uses[0] >= 0
        ]
    last = len(operations) - 1
    staying = [Tensor(name, size, (-1, last), evictable=False) for name, size in stay[0]]
    return Trace(operations, [*staying, *tensors])


def _staying(trace: Trace) -> list[tuple[str, int]]:
    found = [tensor for tensor in trace.tensors if tensor.uses[0] == -1]
    for tensor in found:
        if tensor.evictable or tensor.uses[-1] != len(trace) - 1:
            raise InputError(
                f"{tensor.name} is there at the start of a round, so it must stay until its end"
            )
    return [(tensor.name, tensor.size) for tensor in found]
