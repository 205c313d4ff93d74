"""Plans of their own for some of the sizes that steps have: which sizes, and what that gains.

See docs/theory/smaller-steps.md. A step follows the plan of the smallest size that has one and
covers it. The problem of a size that nobody has captured lies between those of two that were.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from offcert.core.errors import InputError, PlanError
from offcert.core.options import require_count
from offcert.core.uncertainty import executed_on, with_durations
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.files import problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.training.together import Searching


@dataclass(frozen=True)
class SizesChoice:
    """The sizes that get a plan of their own.

    Attributes
    ----------
    numbers : tuple of int
        Numbers of the certificates whose plans are followed, increasing; the last one is among
        them.
    ticks : int
        Ticks of all steps together, each under the plan that it follows.
    with_one : int
        Ticks of all steps together, if all follow the plan of the largest.
    bound : int
        Ticks that all steps together take at least, whatever plan each of them follows: from the
        proved bounds of the certificates.
    compute : int
        Ticks that all steps together compute.
    """

    numbers: tuple[int, ...]
    ticks: int
    with_one: int
    bound: int
    compute: int

    def __str__(self) -> str:
        ours, one, least = (
            f"{each / max(1, self.compute):.3f}" for each in (self.ticks, self.with_one, self.bound)
        )
        return (
            f"plans for {len(self.numbers)} sizes: steps take {ours} times their computing, {one} "
            f"times with one plan, and at least {least} times with any plans"
        )


def choose_buckets(
    certificates: Sequence[Certificate], counts: Sequence[int], most: int
) -> SizesChoice:
    """Choose the sizes that get a plan of their own, so that all steps together take least time.

    The choice is exact: of all sets of sizes of which the largest is one, none that has at most so
    many takes fewer ticks. Of equal ones it has the fewest sizes.

    Parameters
    ----------
    certificates : sequence of Certificate
        One for each size, from the smallest to the largest, for steps that differ in their sizes
        and times only.
    counts : sequence of int
        How many steps have each size.
    most : int
        Number of plans.

    Raises
    ------
    InputError
        If there is not one count for each certificate, the largest has no schedule, or two steps
        differ in more than sizes and times.
    """
    if not certificates or len(certificates) != len(counts):
        raise InputError(f"there are {len(counts)} counts for {len(certificates)} certificates")
    require_count(most, "most")
    if certificates[-1].result.schedule is None:
        raise InputError(f"no plan is known for {certificates[-1].problem.name}, the largest step")
    times = [
        [replayed(each, smaller.problem) for smaller in certificates[: number + 1]]
        for number, each in enumerate(certificates)
    ]
    numbers, ticks = cheapest(times, counts, most)
    steps = list(zip(counts, certificates, strict=True))
    return SizesChoice(
        numbers,
        ticks,
        cheapest(times, counts, 1)[1],
        sum(count * each.result.proved_bound for count, each in steps),
        sum(count * each.problem.trace.compute_time for count, each in steps),
    )


def cheapest(
    times: Sequence[Sequence[int | None]], counts: Sequence[int], most: int
) -> tuple[tuple[int, ...], int]:
    """Return the numbers of the plans to have, the last one among them, and the ticks of all steps.

    A dynamic program over the sizes: with so many plans, what do the steps up to a size take at
    least, if that size has a plan?

    Parameters
    ----------
    times : sequence of sequences of int or None
        For each plan, the ticks of a step of each size up to its own; None if it cannot be used.
    counts : sequence of int
        How many steps have each size.
    most : int
        Number of plans.
    """
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ())] + [None] * len(times)
    found: tuple[int, tuple[int, ...]] | None = None
    for _ in range(min(most, len(times))):
        # From the largest on, so that `best` is still about one plan less before it.
        for plan in reversed(range(len(times))):
            ways, rows = [], times[plan]
            for first in range(plan + 1):
                before, served = best[first], rows[first:]
                if before is not None and None not in served:
                    pairs = zip(counts[first : plan + 1], served, strict=True)
                    ticks = sum(count * (time or 0) for count, time in pairs)
                    ways.append((before[0] + ticks, (*before[1], plan)))
            best[plan + 1] = min(ways, default=None)
        best[0] = None
        last = best[-1]
        if last is not None and (found is None or last[0] < found[0]):
            found = last
    if found is None:
        raise InputError("the plan for the largest step cannot be followed in all smaller ones")
    return found[1], found[0]


def replayed(certificate: Certificate, problem: Problem) -> int | None:
    """Return the ticks of a step that follows the plan of a larger one; None if it cannot.

    Parameters
    ----------
    certificate : Certificate
        The certificate of the larger step.
    problem : Problem
        The problem of the step, with the limit that it has to keep to.

    Raises
    ------
    InputError
        If the two differ in more than sizes and times.
    """
    result, planned = certificate.result, certificate.problem
    if not isinstance(result.schedule, Schedule):
        return None
    try:
        runs = problem.plain()
        if result.execution is not None:
            ours, theirs = planned.computed, problem.computed
            if ours is None or theirs is None:
                raise InputError(f"{problem.name} does not say what is computed from what")
            runs = problem.executed(executed_on(result.execution, ours, theirs))
        return simulate(runs, result.schedule.plan(certificate.executed.trace)).makespan
    except PlanError:
        return None
    except (IndexError, ValueError) as error:
        raise InputError(
            f"{problem.name} differs from {planned.name} in more than sizes and times"
        ) from error


def between(small: Problem, large: Problem, share: Fraction) -> Problem:
    """Return the problem of a step between two captured ones, for a plan that steps may follow.

    Every size, duration and length of a shape is taken to change evenly from the one to the other,
    rounded up. So of products of lengths more is foreseen than there is.

    Parameters
    ----------
    small, large : Problem
        Problems of captured steps that differ in sizes and times only.
    share : Fraction
        How far it is from the small one to the large one, from 0 to 1.

    Raises
    ------
    InputError
        If they differ in something else; the sentence says where.
    """
    assert large.source is not None
    told = large.source["capture"]
    documents = problem_to_json(small), problem_to_json(large)
    for document in documents:
        capture = dict(document["source"]["capture"])
        # With data or without, it is the same step; numbers of nodes are only compared with it.
        capture |= {name: told[name] for name in ("tensors", "nodes")}
        if "record" in capture:
            # What dies in the midst of operations may differ in kind: the larger step's bytes do.
            within = {"within": told["record"].get("within")}
            capture["record"] = capture["record"] | within
        document["source"] = {"capture": capture}
        document |= {"memory": large.platform.memory, "name": large.name}
    found = _between(*documents, share, "")
    found["source"]["capture"]["interpolated"] = True
    found["source"] = {**large.source, **found["source"]}
    _add_up(found)
    return problem_from_json(found)


def _between(small: Any, large: Any, share: Fraction, place: str) -> Any:
    if small == large and type(small) is type(large):
        return large
    if isinstance(small, dict) and isinstance(large, dict) and small.keys() == large.keys():
        return {n: _between(small[n], large[n], share, f"{place}.{n}") for n in large}
    if isinstance(small, list | tuple) and isinstance(large, list | tuple):
        if len(small) == len(large):
            pairs = enumerate(zip(small, large, strict=True))
            return [_between(a, b, share, f"{place}[{number}]") for number, (a, b) in pairs]
    elif type(small) is int and type(large) is int:
        return small + math.ceil((large - small) * share)
    elif _is_number(small) and _is_number(large):
        # A whole number as an argument, such as the time step of a diffusion.
        return large
    raise InputError(f"steps differ in more than sizes and times: see {place.removeprefix('.')}")


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.removeprefix("-").isdecimal()


def _add_up(document: dict[str, Any]) -> None:
    """Let each tensor have the bytes of its storages, which were rounded one by one."""
    capture = document["source"]["capture"]
    if "network" in document:
        rows, tensors = capture["record"]["storages"], document["network"]["values"]
    else:
        rows, tensors = [(row[1], row[4]) for row in capture["saved"]], document["trace"]["tensors"]
    sizes: Counter[int] = Counter()
    for size, tensor in rows:
        if tensor is not None and tensor >= 0:
            sizes[tensor] += size
    for tensor, size in sizes.items():
        tensors[tensor]["size"] = size


def with_times_like(problem: Problem, modelled: Problem, timed: Problem) -> Problem:
    """Return a problem with the times of a model, corrected as those of another one were measured.

    Parameters
    ----------
    problem : Problem
        With the times of the model.
    modelled, timed : Problem
        The same step with the times of the model, and with those that it took.
    """
    rows = zip(*(each.plain().trace.operations for each in (problem, modelled, timed)), strict=True)
    durations = [
        math.ceil(Fraction(here.duration * took.duration, max(1, said.duration)))
        for here, said, took in rows
    ]
    network = with_durations(problem.network, durations)
    assert problem.source is not None
    assert timed.source is not None
    source = {**timed.source, "capture": problem.source["capture"]}
    return replace(problem, network=network, platform=timed.platform, source=source)


class Candidates:
    """Sizes that may get a plan of their own, with a search for the best plan of each.

    Parameters
    ----------
    ends : tuple of two Problem
        A small captured step and the largest, with the times of a hardware model.
    certificate : Certificate
        The certificate of the largest step.
    timed : Problem
        The largest step with the times of the certificate.
    rows : sequence of (Fraction, int)
        How far each size is from the one to the other, and how many steps had it.
    begin : callable
        Begins a search for a plan for a problem with its limit.
    """

    def __init__(
        self,
        ends: tuple[Problem, Problem],
        certificate: Certificate,
        timed: Problem,
        rows: Sequence[tuple[Fraction, int]],
        begin: Callable[[Problem], Searching],
    ) -> None:
        self._ends, self._certificate, self._timed = ends, certificate, timed
        self._rows, self._begin = rows, begin
        self._search: Searching | None = None
        self._found: list[Certificate] = []

    def advance(self, most: int) -> tuple[SizesChoice, list[Certificate]] | None:
        """Return the choice and its certificates, the largest last; None as long as it goes on.

        Raises
        ------
        InputError, PlanError
            If a search has failed, or the two steps differ in more than sizes and times.
        """
        if len(self._found) < len(self._rows) - 1:
            if self._search is None:
                share = self._rows[len(self._found)][0]
                problem = between(*self._ends, share)
                problem = with_times_like(problem, self._ends[1], self._timed)
                limit = self._certificate.problem.platform.memory
                self._search = self._begin(problem.with_memory(limit))
            found = self._search.poll()
            if found is None:
                return None
            self._search = None
            if found.certificate is None:
                raise InputError(found.reason)
            self._found.append(found.certificate)
            return None
        certificates = [*self._found, self._certificate]
        choice = choose_buckets(certificates, [count for _, count in self._rows], most)
        return choice, [certificates[number] for number in choice.numbers]

    def close(self) -> None:
        """End the search that is under way."""
        if self._search is not None:
            self._search.close()
