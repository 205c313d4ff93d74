"""Plans of their own for some of the sizes that steps have: which sizes, and what that gains.

See docs/theory/smaller-steps.md. A step follows the plan of the smallest size that has one and
covers it. The problem of a size that nobody has captured lies between those of two that were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from offcert.core.errors import InputError, PlanError
from offcert.core.options import require_count
from offcert.core.uncertainty import executed_on, with_durations
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.runtime.follow.accounts import say
from offcert.runtime.follow.follower import Follower
from offcert.runtime.watch.signature import Signature
from offcert.training.foretold import between
from offcert.training.growth import Sizes
from offcert.training.making import PlanMaker
from offcert.training.planner import first_call
from offcert.training.together import Searching


@dataclass(frozen=True)
class SizesChoice:
    """The sizes that get a plan of their own, the largest among them, and what all steps take then.

    `numbers` are those of the certificates whose plans are followed, increasing. `ticks` is what
    all steps take together, `with_one` if all follow the plan of the largest, `bound` at least,
    whatever plan each follows (by the certificates' proved bounds), and `compute` what they
    compute.
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

    The choice is exact: of all sets of sizes of which the largest is one, none that has at most
    `most` takes fewer ticks. Of equal ones it has the fewest sizes. There is a certificate for each
    size, from the smallest to the largest, and a count of its steps.
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
    least, if that size has a plan? `times` are, for each plan, the ticks of a step of each size up
    to its own, None if it cannot be used; `counts` how many steps have each size.
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

    The problem has the limit that the step has to keep to; an `InputError` is raised if the two
    steps differ in more than sizes and times.
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


def with_times_like(problem: Problem, modelled: Problem, timed: Problem) -> Problem:
    """Return a problem with the times of a model, corrected as those of another one were measured.

    `modelled` and `timed` are that one, with the times of the model and with those that it took.
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

    They lie between the `ends`, a small captured step and the largest, with the times of a hardware
    model; `certificate` and `timed` are of the largest. `rows` say how far each size is from the
    one to the other, and how many steps had it; `begin` begins a search for a problem with its
    limit.
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
        """Return the choice and its certificates, the largest last; None as long as it goes on."""
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


class Buckets:
    """Plans for some of the sizes that one plan would do for, chosen once steps have been seen.

    `most` of them share these sizes, that of the largest among them.
    """

    def __init__(self, most: int, sizes: Sizes, maker: PlanMaker) -> None:
        self._most, self._sizes, self._maker = most, sizes, maker
        self._candidates: Candidates | None = None
        # The plans for the smaller sizes.
        self._numbers: list[int] = []

    def saw(self, call: Signature) -> None:
        """Take note of a step that begins with a call."""
        if self._most > 1:
            self._sizes.saw(call)

    def wants(self, call: Signature) -> bool:
        """Whether a step is captured only to know the problems of sizes that lie between."""
        wanted = self._most > 1 and self._candidates is None and bool(self._maker.places.made)
        return wanted and self._sizes.wants(call)

    def advance(self, follower: Follower) -> None:
        """Go on with plans for some of the smaller sizes: one search after the other."""
        if self._most == 1:
            return
        try:
            if self._candidates is None:
                self._candidates = self._new_candidates(follower)
                return
            found = self._candidates.advance(self._most)
            if found is not None:
                self.close()
                say(str(found[0]))
                for index, certificate in enumerate(found[1][:-1]):
                    # In the places of those that were chosen before.
                    number = self._numbers[index] if index < len(self._numbers) else None
                    number = self._maker.follow(certificate, number)
                    self._numbers[index : index + 1] = [number]
        except (InputError, PlanError) as error:
            self.close()
            why = f"smaller sizes have no plans of their own: {error}"
            follower.accounts.tell("buckets", why)

    def _new_candidates(self, follower: Follower) -> Candidates | None:
        ends = self._sizes.ends
        if ends is None:
            return None
        largest = first_call(ends[1])
        for made, plan in zip(self._maker.places.made, follower.step_plans, strict=True):
            certificate = made.certificate
            if plan.capture.calls[0] == largest and certificate is not None:
                rows = self._sizes.candidates(*ends)
                return Candidates(ends, certificate, made.problem, rows, self._maker.search)
        # Its plan is still being searched for.
        return None

    def close(self) -> None:
        """End the search that is under way."""
        candidates, self._candidates = self._candidates, None
        if candidates is not None:
            candidates.close()
            self._sizes.chose()
