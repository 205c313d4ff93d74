"""When the host holds copies that streams write and read: residences in the arena. Needs no torch.

A copy is needed from the operation before which it is handed to the stream that writes it, to the
one before which ``compute`` waits for the last copy back. Whatever takes its place is handed over
later, so its stream waits only for what ``compute`` has waited for already.
"""

from __future__ import annotations

from offcert.core.host_residences import HostResidences
from offcert.core.placement import Occupant, Residence
from offcert.core.trace import Trace
from offcert.runtime.streaming.timetable import Act, Timetable


def host_residences_in_streams(trace: Trace, timetable: Timetable) -> HostResidences:
    """Return which tensors have a copy on the host, and before which operations it is needed.

    Returns
    -------
    tuple of (Occupant, Residence)
        By the numbers of the tensors; what is empty has none. Times are numbers of operations.
    """
    stays: dict[int, tuple[int, int]] = {}
    for operation, actions in enumerate(timetable.actions):
        for action in actions:
            tensor = trace.gaps[action.gap].tensor
            if action.act is Act.COPY_OUT:
                stays[tensor] = operation, operation + 1
            elif action.act is Act.AWAIT:
                # What is handed over before this operation comes before it is waited for.
                stays[tensor] = stays[tensor][0], operation + 1
    return tuple(
        (Occupant("tensor", tensor), Residence(each.name, each.size, *stays[tensor]))
        for tensor, each in enumerate(trace.tensors)
        if tensor in stays and each.size
    )
