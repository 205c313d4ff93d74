"""A certificate with 10,000 operations and 4,000 transfers, made without any search."""

from fractions import Fraction
from functools import cache

from offcert.core.platform import Kind, Platform
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule, Transfer

HALF, MOVED, STEP = 5_000, 2_000, 1_000


@cache
def long_certificate() -> Certificate:
    """Every operation writes what its counterpart reads; the first tensors leave and return."""
    operations = [Operation(f"F:layer{i}.{'x' * 60}", STEP, i % 7) for i in range(HALF)]
    operations += [Operation(f"B:layer{i}", STEP) for i in reversed(range(HALF))]
    last = 2 * HALF - 1
    tensors = [Tensor(f"t{i}.{'y' * 60}", 1000 + i % 10, (i, last - i)) for i in range(HALF)]
    problem = Problem(
        "long", Trace(operations, tensors), Platform(10**7, Fraction(2)), units=Units("ns", "B")
    )
    starts = [STEP * i for i in range(2 * HALF)]
    ends = [start + STEP for start in starts]
    transfers = []
    for i in range(MOVED):
        begin = STEP * (i + 1)
        transfers.append(Transfer(Kind.OFFLOAD, i, begin, begin + 500))
        begin = STEP * (last - i - 1)
        transfers.append(Transfer(Kind.PREFETCH, i, begin, begin + 500))
    bounds = tuple(Bound(f"b{i}", STEP * i, Evidence.PROVED) for i in range(100))
    schedule = Schedule(starts, ends, transfers)
    return Certificate(problem, Result(SolveStatus.FEASIBLE, schedule, bounds), method="none")
