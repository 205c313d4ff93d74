"""`checkpoint_policies`: which results PyTorch's own checkpointing keeps, as a certificate says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from offcert.core.carried.carry import Carried, carry
from offcert.core.carried.ranges import Range, Ranges
from offcert.core.carried.unread import kept_in
from offcert.core.carried.unroll import CarriedUnrolling
from offcert.core.errors import InputError
from offcert.core.program import Program, Segment
from offcert.core.units import Units, format_size
from offcert.questions.schedule.carried import with_ranges
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.runtime.capture import read_capture
from offcert.runtime.plan.place import carried_by, place, program_in, steady
from offcert.runtime.plan.step_plan import CertificateLike, planned
from offcert.runtime.segments.placed import PlacedSegment
from offcert.runtime.segments.selective import CheckpointRegion, Policies

_BYTES = Units("ns", "B")


def for_policies(problem: Problem) -> Problem:
    """Return a problem whose plans `checkpoint_policies` can say: nothing moves, modules run again.

    What may run again are calls of modules that a step calls once, and consecutive children of
    containers (`nn.Sequential`). Bounds that are proved of it hold whatever runs again.

    Parameters
    ----------
    problem : Problem
        Of a captured step, with the clock of modules.

    Raises
    ------
    InputError
        If it is not, or nothing in it may run again.
    """
    if problem.computed is None or problem.source is None:
        raise InputError(f"{problem.name} is not the problem of a captured step: profile the model")
    capture = read_capture(problem.source, problem.computed.trace())
    if capture.record is None or capture.ranges is None:
        raise InputError(f"{problem.name} was profiled without what recomputation needs")
    often = Counter(each.path for each in capture.record.calls)
    ranges = Ranges(
        tuple(each for each in capture.ranges.calls if often[each.path] == 1),
        tuple(each for each in capture.ranges.rows if often[each.path] == 1),
    )
    if next(iter(ranges), None) is None:
        raise InputError(f"no module of {problem.name} is called once in a step")
    return replace(with_ranges(problem, ranges), recompute=Recompute.ANY, offload=False)


def checkpoint_policies(certificate: CertificateLike) -> Policies:
    """Return a certificate that only recomputes as policies of PyTorch's selective checkpointing.

    `torch.utils.checkpoint` carries the plan out then, without anything of ours in the step::

        policies = offcert.checkpoint_policies(certificate)
        with policies.applied(model):
            ...  # the loop, as it was

    Or by hand, one module after another, wherever a ``context_fn`` is taken::

        for region in policies.regions:
            module = model.get_submodule(region.path)
            run = functools.partial(
                checkpoint, module.forward, use_reentrant=False, context_fn=region.context_fn
            )

    A policy says less than a certificate. Kept results of which nobody needs the contents stay as
    a whole, or run again if there is no room for them; calls in a line are checkpoints one by one;
    modules that a step calls more than once, results that are changed in place, and results that
    are kept in a segment inside of another one, run as without a plan or again. What the step takes
    then is predicted anew, and is within the certificate's limit, or the certificate is refused.

    Parameters
    ----------
    certificate : Certificate
        For a problem of one captured step, in which nothing is moved.

    Returns
    -------
    Policies
        The regions, and what is predicted of them.

    Raises
    ------
    InputError
        If the certificate moves tensors, holds no schedule, or no policies keep to its limit; the
        sentence names what a policy cannot say.
    """
    [(problem, plan, execution)] = planned(certificate, None)
    if not isinstance(plan, Schedule):
        raise InputError(f"the certificate of {problem.name} moves tensors in pieces")
    if plan.transfers:
        trace = problem.trace if execution is None else execution.trace
        first = trace.tensors[trace.gaps[plan.transfers[0].gap].tensor].name
        raise InputError(
            f"the certificate of {problem.name} moves tensors ({first} first), which no policy can "
            "say: certify it with --offload no, or follow the certificate by offcert.offload"
        )
    if execution is None or problem.computed is None or not execution.repeated:
        raise InputError(f"nothing runs again in the certificate of {problem.name}")
    carried_by(problem, execution)
    said = _Said(problem, program_in(execution))
    return said.policies(sum(each.duration for each in execution.trace.operations))


class _Said:
    """The program of a certificate, as far as policies can say it."""

    def __init__(self, problem: Problem, program: Program) -> None:
        assert problem.computed is not None
        self.problem, self.network = problem, problem.computed
        self.capture = read_capture(problem.source, self.network.trace())
        assert self.capture.record is not None
        self.record, self.ranges = self.capture.record, self.capture.ranges
        self.often = Counter(each.path for each in self.record.calls)
        self.changes: list[str] = []
        bases = {value.base for value in self.network.values} - {None}
        changed = (n for n, v in enumerate(self.network.values) if n in bases or v.base is not None)
        self.in_place = {self.network.writer[each] for each in changed}
        self.program = Program(
            one for segment in program.segments for one in self._segments(segment, ())
        )

    def policies(self, asked: int) -> Policies:
        """Return the policies; `asked`: ticks of the step in the certificate."""
        limit = self.problem.platform.memory
        program, found = self._within(limit)
        trace = found.execution.trace
        if trace.peak_memory > limit:
            said = "; ".join(self.changes) or "what is kept stays as a whole"
            least, most = (format_size(each, _BYTES) for each in (trace.peak_memory, limit))
            raise InputError(
                f"policies for the certificate of {self.problem.name} need {least}, more than its "
                f"limit of {most}: {said}; offcert.offload follows it"
            )
        placed = place(program, self.ranges, self.capture.ticks)
        unrolling = CarriedUnrolling(self.network, program, self.ranges, self.record)
        all_of_it = (each for one in program.segments for each in (one, *one.nested()))
        pairs = zip(all_of_it, placed.nested(), strict=True)
        return Policies(
            self.problem.name,
            tuple(self._region(segment, named, unrolling) for segment, named in pairs),
            sum(each.duration for each in trace.operations),
            asked,
            trace.peak_memory,
            limit,
            tuple(self.changes),
        )

    def _within(self, limit: int) -> tuple[Program, Carried]:
        """Return the program that keeps most within a limit, or what takes least."""
        program, found = self.program, self._carried(self.program)
        if found.execution.trace.peak_memory <= limit:
            return program, found
        unread = self._unread()
        few, many = 0, len(unread)
        best = None
        while few <= many:
            count = (few + many) // 2
            made = _without(self.program, set(unread[:count]))
            program, found = made, self._carried(made)
            if found.execution.trace.peak_memory <= limit:
                best, many = (count, program, found), count - 1
            else:
                few = count + 1
        if best is None:
            return program, found
        count, program, found = best
        if count:
            first = self.network.computations[unread[0]].name
            self.changes.append(
                f"{count} computations run again whose results nobody reads ({first} first)"
            )
        return program, found

    def _unread(self) -> list[int]:
        """Return the kept computations with results that nobody reads, cheapest by byte first."""
        ticks = self.capture.ticks
        unread = carry(self.network, self.program, self.ranges, self.record, ticks).unread

        def price(computation: int) -> float:
            sights = self.record.all_made_in[computation]
            size = sum(self.record.storages[sights[n].storage][0] for n in unread[computation])
            return self.network.computations[computation].duration / max(size, 1)

        return sorted((each for each, places in unread.items() if places), key=price)

    def _carried(self, program: Program) -> Carried:
        ticks = self.capture.ticks
        return carry(self.network, program, self.ranges, self.record, ticks, stand_ins=False)

    # From segments to those that a policy can say.

    def _segments(self, segment: Segment, above: tuple[Range, ...]) -> Iterator[Segment]:
        """Yield the segments that take the place of one."""
        found = self.ranges.find(segment.first, segment.last)
        if found is not None and found.line:
            named = place(Program([segment]), self.ranges, self.capture.ticks).segments[0]
            self.changes.append(f"{named}: each call is a checkpoint by itself")
            for path, call in found.line:
                one = self.ranges.locate(path, call)
                if one is not None:
                    yield from self._segments(_cut(segment, one), above)
            return
        if found is None:
            return
        name = PlacedSegment(found.path, found.call, found.children)
        if not self._is_sayable(found, above):
            self.changes.append(f"{name}: does not run again by itself")
            return
        inner = tuple(
            one for each in segment.inner for one in self._segments(each, (*above, found))
        )
        kept = set(segment.kept) - self.in_place
        kept -= {n for each in inner for n in range(each.first, each.last + 1)}
        if above:
            kept = set()
        fewer = len(segment.kept) - len(kept)
        if fewer:
            self.changes.append(f"{name}: {fewer} kept computations run again")
        yield Segment(segment.first, segment.last, tuple(sorted(kept)), inner)

    def _is_sayable(self, found: Range, above: tuple[Range, ...]) -> bool:
        paths = {each.path for each in above if each.children is not None}
        return (
            self.often[found.path] == 1
            and bool(steady(self.network, [found]))
            and not (found.children is not None and found.path in paths)
        )

    def _region(
        self, segment: Segment, named: PlacedSegment, unrolling: CarriedUnrolling
    ) -> CheckpointRegion:
        span, kept = unrolling.spans[segment], kept_in(segment)
        made: dict[int, list[tuple[str, int]]] = {}
        for sight in self.record.results:
            if span.enter <= sight.moment < span.leave:
                made.setdefault(sight.moment, []).append((sight.dtype, len(sight.shape)))
        moments = sorted(made)
        return CheckpointRegion(
            replace(named, kept=(), inner=()),
            tuple(tuple(made[each]) for each in moments),
            frozenset(n for n, each in enumerate(moments) if self.record.operation(each) in kept),
        )


def _cut(segment: Segment, one: Range) -> Segment:
    """Return the part of a line that is one of its calls."""
    inner = tuple(
        each for each in segment.inner if one.first <= each.first <= each.last <= one.last
    )
    if inner and (inner[0].first, inner[0].last) == (one.first, one.last):
        return inner[0]
    kept = tuple(each for each in segment.kept if one.first <= each <= one.last)
    return Segment(one.first, one.last, kept, inner)


def _without(program: Program, computations: set[int]) -> Program:
    """Return a program in which some computations are not kept."""
    return Program(
        replace(each, kept=tuple(n for n in each.kept if n not in computations))
        for each in program.segments
    )
