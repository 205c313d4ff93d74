"""Somebody's offloading code, run unmodified on a simulated CUDA device that names missing waits.

While `offcert_lab.engines.audit.audit_engine` runs a function, the names of PyTorch that have
to do with CUDA mean a simulated machine: one device, ``cuda:0``, whose tensors lie in memory of the
CPU. Its rules:

1. Operators run when they are called, whatever has been waited for: the program goes on with right
   values, and so comes to all of its faults in one run. What is entered in a book is the stream in
   which each of them would have run, the bytes it reads and writes, and the line of the program.
2. Streams, events and the host know of each other's work by the vector clocks of
   `offcert.runtime.simulated.streams`. Two accesses to the same bytes, at least one of which
   writes, must be ordered by them; otherwise they are a fault, whichever happened to be first.
   Bytes are compared one by one, by offset, shape and strides: columns of a matrix are in nobody's
   way.
3. The host comes after a piece of work only once it has waited for it: ``synchronize`` of an event,
   a stream or the device, a ``query`` that says yes, a copy that is not ``non_blocking``, one to
   pageable memory, ``item``, ``nonzero``, and other operators whose result the host needs. It reads
   where an operator of the CPU, ``tolist``, ``numpy`` or ``print`` does.
4. ``non_blocking`` copies are asynchronous between the device and contiguous pinned memory. From
   pageable memory, or through other strides, the host copies first, to memory of the driver.
   ``to("cpu", non_blocking=True)`` makes pinned memory, as PyTorch does.
5. Memory of the device belongs to the stream that was current when it was allocated. Once dropped
   (or emptied by ``resize_(0)``) it may be the next allocation's of that stream: all earlier uses,
   in whatever streams, must come before those of what is allocated later. ``record_stream`` puts
   that off until the stream has done what it had been given. Pinned memory waits for its copies by
   itself.
6. A backward pass runs each node in the stream of its forward operator, as autograd's engine does,
   with the waits that it makes.
7. An event that is asked for has not happened for as long as that may be; then the function runs
   again, and all have happened at once.
8. Afterwards the book is carried out in other orders that its events allow, on bytes of their own
   where memory that is given out again is overwritten, and what was never written is 0xFF. The
   values that the program got (``item``, ``tolist``), and what it returns, must always be the
   same.

All threads of the host count as one. Not seen, and refused by name where PyTorch lets it be known:
kernels of C++ extensions and Triton, collectives, CUDA graphs, ``torch.compile``, devices beside
``cuda:0``, streams of other libraries, DLPack. Not seen, and not to be known: memory that is
written through ``data_ptr`` or an array of NumPy, and scratch memory of kernels.
``torch.autocast("cuda")`` changes no types here.

Its size: names of `torch.cuda` and of tensors lead to a simulated machine with streams, memory and
orders of execution of its own, so that an engine of others runs on it unmodified.
"""

from offcert_lab.engines.audit import EngineAudit, audit_engine
from offcert_lab.engines.findings import CodePlace, Fault, Finding, Use
from offcert_lab.engines.machine import Peaks, UnseenError

__all__ = [
    "CodePlace",
    "EngineAudit",
    "Fault",
    "Finding",
    "Peaks",
    "UnseenError",
    "Use",
    "audit_engine",
]
