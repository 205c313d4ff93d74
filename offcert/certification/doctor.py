"""Whether a training step fits into a device, at which size, and how fast its best plan is."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcert.certification.diagnosis import Diagnoses, Diagnosis
from offcert.certification.ladder import certify
from offcert.certification.other_ways import other_ways
from offcert.certification.search import SearchProgress
from offcert.core.errors import InputError
from offcert.core.options import require_count, require_seconds, require_seed
from offcert.core.trace import require_integer
from offcert.questions.schedule.device_memory import (
    require_optimiser_counted,
    uncounted_bytes,
    with_copies_of_buffers,
)
from offcert.questions.schedule.problem import Problem, Recompute

# Seconds that a search gets even where captures took all the time. Arbitrary.
_LEAST_SECONDS = 0.5
# Sizes that a search for the largest one takes if it is not foreseen, the largest that is tried,
# and the part of a size that the one found may be too small by. Arbitrary.
_FORESEEN = 8
_LARGEST = 2**20
_TOO_SMALL = 16


@dataclass(frozen=True)
class Size:
    """One size of a training step."""

    # The dimensions that make the size, such as ``{"batch": 8, "sequence": 2048}``.
    asked: Mapping[str, int]
    samples: int  # Samples that one step trains on, for rates
    # Returns the step's problem at this size, in nanoseconds and bytes.
    profile: Callable[[], Problem]


@dataclass(frozen=True)
class DoublingSearch:
    """Sizes that double until one does not fit, and then those between, to the largest that does.

    From sixteen on, sizes in between are left out: the one found is too small by a sixteenth at
    most.
    """

    of: Callable[[int], Size]  # Returns the size of a number of samples


def diagnose(
    sizes: Sequence[Size | DoublingSearch],
    device_memory: int,
    *,
    host_memory: int | None = None,
    pageable_memory: int | None = None,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    recompute: bool = True,
    progress: Callable[[SearchProgress], None] | None = None,
    found: Callable[[Diagnosis], None] | None = None,
) -> Diagnoses:
    """Find the best plan at every size of a training step, within one limit of time for all.

    Sizes come in their order. What one does not use of its share of the time is for those after
    it. An interrupt ends with what is known.

    The device's memory counts all that a problem does not. A plan that needs more of the host's
    memory than may be pinned is short of it; `pageable_memory` is for copies that have no room
    there, and for those of ``save_on_cpu``. The time is for captures, too, and each search gets
    half a second at least. With `recompute`, computations may run again where it is known what is
    computed from what. `progress` is told of every step and improvement of every search, and
    `found` is given each diagnosis as soon as it is there.
    """
    if not sizes:
        raise InputError("at least one size is needed")
    require_integer(device_memory, "device memory", 1)
    require_count(workers, "workers")
    require_seed(seed, "seed")
    for name, limit in (("host memory", host_memory), ("pageable memory", pageable_memory)):
        if limit is not None:
            require_integer(limit, name, 0)
    deadline = time.monotonic() + require_seconds(time_limit, "time_limit")
    diagnoses: list[Diagnosis] = []
    turns = _in_turn(sizes)
    size, waiting = next(turns)
    while True:
        try:
            problem, beside = _asked(size.profile(), device_memory, recompute)
            left = device_memory - sum(beside.values())
            others, known = other_ways(problem, left, pageable_memory)
            certificate = None
            if sum(beside.values()) <= device_memory:
                certificate = certify(
                    problem,
                    time_limit=max((deadline - time.monotonic()) / waiting, _LEAST_SECONDS),
                    workers=workers,
                    seed=seed,
                    progress=progress,
                    known=known,
                )
        except KeyboardInterrupt:
            return Diagnoses(tuple(diagnoses), len(diagnoses) + waiting)
        needs = problem, beside, certificate, host_memory, pageable_memory, others
        diagnosis = Diagnosis(size.asked, size.samples, device_memory, *needs)
        diagnoses.append(diagnosis)
        if found is not None:
            found(diagnosis)
        if certificate is not None and certificate.notes.interrupted:
            return Diagnoses(tuple(diagnoses), len(diagnoses) + waiting - 1)
        try:
            size, waiting = turns.send(diagnosis)
        except StopIteration:
            return Diagnoses(tuple(diagnoses), len(diagnoses))


_Turns = Generator[tuple[Size, int], Diagnosis, None]


def _in_turn(sizes: Sequence[Size | DoublingSearch]) -> _Turns:
    """Yield each size, with how many are to come with it; is sent what was found of it."""
    for index, each in enumerate(sizes):
        after = len(sizes) - index - 1
        if isinstance(each, Size):
            yield each, after + 1
        else:
            yield from _larger_and_larger(each, after)


def _larger_and_larger(growing: DoublingSearch, after: int) -> _Turns:
    fits, fails, number = 0, 0, 1
    while number <= _LARGEST:
        waiting = (fails - fits).bit_length() if fails else _FORESEEN
        diagnosis = yield growing.of(number), waiting + after * _FORESEEN
        if diagnosis.planned:
            fits = number
        else:
            fails = number
        if fails and fails - fits <= max(1, fits // _TOO_SMALL):
            return
        number = (fits + fails) // 2 if fails else 2 * number


def _asked(
    problem: Problem, device_memory: int, recompute: bool
) -> tuple[Problem, Mapping[str, int]]:
    """Return the problem at the device's limit, and what takes memory of the device beside it."""
    again = recompute and problem.computed is not None
    asked = replace(problem, recompute=Recompute.ANY if again else Recompute.NONE)
    beside = uncounted_bytes(problem)
    require_optimiser_counted(beside)
    if again:
        beside = with_copies_of_buffers(beside)
    left = max(0, device_memory - sum(beside.values()))
    return asked.with_memory(left), {name: size for name, size in beside.items() if size}
