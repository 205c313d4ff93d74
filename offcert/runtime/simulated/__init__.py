"""A device on the CPU, on which the engine runs as on CUDA, and on which mistakes show.

Its rules:

1. Operators run when they are called, on tensors of the CPU. They are the work of ``compute``.
2. Copies wait in the queue of their stream. They run **as late as the events allow**: when
   ``compute`` waits for an event, or the host for all (`SimulatedDevice.synchronise`), what comes
   before the event in its stream runs, and first whatever that stream waits for in turn. Whoever
   reads without a wait reads what was there before.
3. Nobody's bytes are 0xFF: memory from `SimulatedDevice.allocate` and of arenas is filled with
   it. As a floating-point number that is not one, so that gradients show it.
4. A queued copy does not keep its tensors alive. If the storage has died or has been emptied when
   its turn comes, a copy out writes poison to the host, and a copy back is lost. Of an arena that
   has been given back, copies bring poison, and copies to it are lost.
5. Each stream has a clock, in integer nanoseconds. A copy begins at the latest of the times at
   which its stream has done what it was given before, and of the events that the stream has
   waited for; it takes ``ceil(bytes / rate)``, rounded once for all its parts. ``ran(d)`` lets
   ``compute`` take ``d`` longer. An event has the time of its stream's clock. So ``compute`` has
   stalled for as long as lies between an event before a wait and one after it. Where the
   directions of a duplex link slow each other down, copies last as `docs/theory/slowing-links.md`
   defines it; so an end may change until the host has waited for it. On a simplex link
   copies of both streams run one at a time, in the order in which they were handed over; those
   that only the link puts in order are counted (``crossings``).
6. The host takes no time, unless it is given a clock (`RealHost`): then nothing begins before the
   host hands it over, and no operation ends before all of it has been handed over. ``ran(d, e, …)``
   tells of several operations at once, which have then been handed over evenly. The host has waited
   for something only once it has synchronised; what it hands over afterwards begins after that. So
   with the adversary `late` no event is ``reached`` before. Other adversaries (`early`,
   `by_chance`) run copies that may run, and let the host see that events have happened, which then
   lets it have taken as long. The simulation itself takes none of the host's time.
7. Two uses of the same memory, at least one of which writes, must be ordered by events; otherwise
   they are a `DataRace`, whatever happened to be first. Uses are:

   - the allocation of a storage, in the order of ``compute``, and its death, which is one too:
     what ``compute`` does next may write there. A storage that was not allocated here was written
     by operators, at the latest by those before the last ``ran``: the event that a copy out waits
     for has to be recorded after that;
   - copies, of storages as wholes and of ranges of the host;
   - giving an arena back, for which the host itself must have waited.

   The simulation cannot run copies while operators are still underway, since those run at once:
   what would go wrong if ``compute`` were late and copies early is found by this rule. What
   ``compute`` does without waiting is found by rules 2 to 4, bytes being wrong.
8. An arena takes exactly its bytes from what the host may register, chunk by chunk, until it is
   closed. Only closing gives them back, so that an arena that was forgotten is seen in
   ``pinned_bytes``. For a copy to or from memory that is not registered the host waits, as it does
   for a driver that copies through memory of its own.
9. Memory of the device is taken by what `SimulatedDevice.allocate` returned, until it has died,
   and by what a `LiveBytes` counts that the device watches, for as long as it counts. Without
   one the tensors of operators take none, since nobody sees them. Every byte of it can be given
   out, unless the device has another `Allocator`, and beyond its limit it is out of memory.
10. Threads of the host that copy to files and from them (`SimulatedDevice.clerk`) are queues, too,
   with clocks of their own that files do not move: they copy as late as events allow, and their
   uses of the host's memory race like those of streams.

Its size: it is the machine on which all of the engine is tested without a GPU: streams, an arena,
races that an adversary chooses, and the host's own time.
"""

from offcert.runtime.simulated.allocator import Allocator
from offcert.runtime.simulated.arena import SimulatedArena
from offcert.runtime.simulated.device import SimulatedDevice
from offcert.runtime.simulated.host import HostClock, RealHost
from offcert.runtime.simulated.races import DataRace, RaceError, RaceKind
from offcert.runtime.simulated.streams import Adversary, by_chance, early, late

__all__ = [
    "Adversary",
    "Allocator",
    "DataRace",
    "HostClock",
    "RaceError",
    "RaceKind",
    "RealHost",
    "SimulatedArena",
    "SimulatedDevice",
    "by_chance",
    "early",
    "late",
]
