"""Brute force for several devices: all that can be started, tick by tick, for tiny problems.

It shares no code with simulator, checker, bounds or models; of `offcert` it reads the problem's
numbers only. A state is what is on at a moment, with the ticks that each thing still takes. All
numbers are integers, so some shortest schedule starts everything at integer times, and each thing
at the beginning or when another ends: otherwise it could start a tick earlier. The states of such a
tick are all that follow from starting any set of things; the first tick with a state in which
everything is done is the optimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from offcert.questions.devices.problem import DevicesProblem

# A gap: on the device; leaving; gone; coming back; back.
HERE, GONE, COMING, BACK = range(4)
# A device: operations ended, ticks left of the running one (-1: none), what became of every gap,
# and which tensors have a copy on the host.
Device = tuple[int, int, tuple[int, ...], tuple[bool, ...]]
# What a direction of the link does: ticks left, what it is, of which tensor, gap or gradient, and
# for which device; and what a core adds up: ticks left, the gradient, and the device.
Use = tuple[int, str, int, int] | None
Job = tuple[int, int, int]
# Of every gradient and device: 0 not sent, 1 sent, 2 added, 3 returned, negative on the way.
Jobs = tuple[tuple[int, ...], ...]
State = tuple[tuple[Device, ...], tuple[Use, ...], tuple[Job, ...], Jobs]


def ticks(size: int, rate: Fraction) -> int:
    """Return how long so many bytes take."""
    return -((-size * rate.denominator) // rate.numerator)


class Oracle:
    """The search for one problem, with gradients added up by the host."""

    def __init__(self, problem: DevicesProblem) -> None:
        assert problem.accumulation.place.value == "host"
        trace, platform = problem.step.trace, problem.step.platform
        self.count = problem.devices
        self.trace = trace
        self.memory = platform.memory
        self.simplex = platform.link.value == "simplex"
        self.cores = problem.accumulation.cores
        self.durations = [operation.duration for operation in trace.operations]
        outwards = platform.bandwidth
        inwards = platform.prefetch_bandwidth or outwards
        self.tensors = trace.tensors
        self.gaps = []
        for index, tensor in enumerate(trace.tensors):
            # Where everything fits, moving anything is of no use.
            if tensor.evictable and tensor.size > 0 and trace.peak_memory > self.memory:
                for use, following in zip(tensor.uses, tensor.uses[1:], strict=False):
                    if following > use + 1:
                        self.gaps.append((index, use, following))
        self.out = [ticks(tensor.size, outwards) for tensor in trace.tensors]
        self.back = [ticks(tensor.size, inwards) for tensor in trace.tensors]
        self.gradients = problem.gradients if problem.devices > 1 else ()
        self.send = [ticks(each.size, outwards) for each in self.gradients]
        self.add = [ticks(each.size, problem.accumulation.rate) for each in self.gradients]
        self.give = [ticks(each.size, inwards) for each in self.gradients]

    def run(self, most: int) -> int | None:
        """Return the least makespan if it is at most `most`, else None."""
        device: Device = (0, -1, (HERE,) * len(self.gaps), (False,) * len(self.tensors))
        jobs = ((0,) * self.count,) * len(self.gradients)
        states: set[tuple[State, bool]] = {(((device,) * self.count, (None, None), (), jobs), True)}
        for time in range(most + 1):
            ready: set[State] = set()
            for state, event in {(self.sorted(state), event) for state, event in states}:
                ready |= self.started(state) if event else {state}
            if any(self.done(state) for state in ready):
                return time
            afterwards = [self.later(state) for state in ready if time + self.least(state) <= most]
            states = {each for each in afterwards if each is not None}
        return None

    def sorted(self, state: State) -> State:
        """Return the state with the devices in one order: they are all alike."""
        devices, link, cores, jobs = state
        order = sorted(
            range(self.count),
            key=lambda d: (
                devices[d],
                [row[d] for row in jobs],
                [use is not None and use[3] == d for use in link],
                [each[2] == d for each in cores],
            ),
        )
        place = {device: number for number, device in enumerate(order)}
        return (
            tuple(devices[d] for d in order),
            tuple(None if use is None else (*use[:3], place[use[3]]) for use in link),
            tuple(sorted((left, which, place[where]) for left, which, where in cores)),
            tuple(tuple(row[d] for d in order) for row in jobs),
        )

    def done(self, state: State) -> bool:
        devices, _, _, jobs = state
        ended = all(device[0] == len(self.durations) for device in devices)
        return ended and all(each == 3 for row in jobs for each in row)

    def least(self, state: State) -> int:
        """Return the ticks that a state still takes at least: of each resource."""
        devices, link, cores, jobs = state
        use = [0 if each is None else each[0] for each in link]
        found = adding = 0
        for o, left, gaps, _ in devices:
            rest = sum(self.durations[o:]) if left == -1 else left + sum(self.durations[o + 1 :])
            found = max(found, rest)
            use[1] += sum(
                self.back[tensor]
                for (tensor, _, _), status in zip(self.gaps, gaps, strict=True)
                if status == GONE
            )
        for which, row in enumerate(jobs):
            use[0] += self.send[which] * row.count(0)
            use[1] += self.give[which] * sum(each in (-1, 0, 1, 2) for each in row)
            adding += self.add[which] * sum(each in (0, 1) for each in row)
        adding += sum(left for left, *_ in cores)
        link_time = sum(use) if self.simplex else max(use)
        return max(found, link_time, -(-adding // self.cores))

    def later(self, state: State) -> tuple[State, bool] | None:
        """Return the state a tick later, and whether anything has ended; None if nothing is on."""
        devices, link, cores, jobs = state
        left = [device[1] for device in devices if device[1] > 0]
        left += [use[0] for use in link if use is not None] + [each[0] for each in cores]
        if not left:
            return None
        moved = [(o, left - 1 if left > 0 else left, g, c) for o, left, g, c in devices]
        link = tuple(None if use is None else (use[0] - 1, *use[1:]) for use in link)
        cores = tuple((left - 1, which, where) for left, which, where in cores)
        return self.ended((tuple(moved), link, cores, jobs)), min(left) == 1

    def ended(self, state: State) -> State:
        """Take note of all that has no tick left."""
        devices, link, cores, jobs = list(state[0]), list(state[1]), state[2], state[3]
        rows = [list(row) for row in jobs]
        for number, use in enumerate(link):
            if use is not None and use[0] == 0:
                link[number] = None
                _, kind, which, where = use
                if kind == "send":
                    rows[which][where] = 1
                elif kind == "give":
                    rows[which][where] = 3
                else:
                    o, left, gaps, copies = devices[where]
                    if kind == "out":
                        copies = (*copies[:which], True, *copies[which + 1 :])
                    else:
                        gaps = (*gaps[:which], BACK, *gaps[which + 1 :])
                    devices[where] = (o, left, gaps, copies)
        for left, which, where in cores:
            if left == 0:
                rows[which][where] = 2
        cores = tuple(each for each in cores if each[0] > 0)
        for number, (o, left, gaps, copies) in enumerate(devices):
            if left == 0:
                devices[number] = (o + 1, -1, gaps, copies)
        return tuple(devices), tuple(link), cores, tuple(map(tuple, rows))

    def started(self, state: State) -> set[State]:
        """Return every state that comes of starting things now, this one among them."""
        found = {state}
        waiting = [state]
        while waiting:
            for child in self.children(waiting.pop()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        return found

    def children(self, state: State) -> Iterator[State]:
        yield from self.operations(state)
        yield from self.transfers(state)
        yield from self.additions(state)

    def held(self, device: Device, at: int, inside: bool) -> int:
        """Bytes on a device during an operation or before it."""
        _, _, gaps, _ = device
        bytes_ = sum(
            tensor.size
            for tensor in self.tensors
            if (tensor.uses[0] <= at if inside else tensor.uses[0] < at) and at <= tensor.uses[-1]
        )
        for (tensor, _, _), status in zip(self.gaps, gaps, strict=True):
            if status == GONE:
                bytes_ -= self.tensors[tensor].size
        if inside:
            bytes_ += self.trace.operations[at].workspace
        return bytes_

    def operations(self, state: State) -> Iterator[State]:
        for number, device in enumerate(state[0]):
            o, left, gaps, copies = device
            if left == -1:
                # What has a copy may be dropped between its uses, as soon as it is not needed.
                for index, (tensor, before, after) in enumerate(self.gaps):
                    if gaps[index] == HERE and copies[tensor] and before < o <= after:
                        dropped = (*gaps[:index], GONE, *gaps[index + 1 :])
                        yield self.put(state, number, (o, left, dropped, copies))
            else:
                for index, (tensor, before, after) in enumerate(self.gaps):
                    if gaps[index] == HERE and copies[tensor] and before < o < after:
                        dropped = (*gaps[:index], GONE, *gaps[index + 1 :])
                        yield self.put(state, number, (o, left, dropped, copies))
            if left != -1 or o == len(self.durations):
                continue
            if any(
                after == o and status in (GONE, COMING)
                for (_, _, after), status in zip(self.gaps, gaps, strict=True)
            ):
                continue
            if self.held(device, o, True) <= self.memory:
                if self.durations[o] == 0:
                    yield self.put(state, number, (o + 1, -1, gaps, copies))
                else:
                    yield self.put(state, number, (o, self.durations[o], gaps, copies))

    def put(self, state: State, number: int, device: Device) -> State:
        devices, link, cores, jobs = state
        return (*devices[:number], device, *devices[number + 1 :]), link, cores, jobs

    def transfers(self, state: State) -> Iterator[State]:
        devices, link, cores, jobs = state
        free_out = link[0] is None and (not self.simplex or link[1] is None)
        free_back = link[1] is None and (not self.simplex or link[0] is None)
        for number, device in enumerate(devices):
            o, left, gaps, copies = device
            if free_out:
                for tensor in {tensor for tensor, _, after in self.gaps if after >= o}:
                    if self.tensors[tensor].uses[0] < o and not copies[tensor]:
                        use = (self.out[tensor], "out", tensor, number)
                        yield devices, (use, link[1]), cores, jobs
            if free_back:
                for index, (tensor, _, _) in enumerate(self.gaps):
                    if gaps[index] != GONE:
                        continue
                    running = left != -1
                    taken = self.held(device, o, running) + self.tensors[tensor].size
                    if taken <= self.memory:
                        coming = (*gaps[:index], COMING, *gaps[index + 1 :])
                        use = (self.back[tensor], "back", index, number)
                        rest = self.put(state, number, (o, left, coming, copies))
                        yield rest[0], (link[0], use), cores, jobs
        for which, gradient in enumerate(self.gradients):
            for number, device in enumerate(devices):
                if free_out and jobs[which][number] == 0 and device[0] > gradient.ready:
                    use = (self.send[which], "send", which, number)
                    yield devices, (use, link[1]), cores, self.mark(jobs, which, number)
                if (
                    free_back
                    and all(each >= 2 or each == -3 for each in jobs[which])
                    and jobs[which][number] == 2
                    and device[0] > gradient.last_use
                ):
                    use = (self.give[which], "give", which, number)
                    marked = self.mark(jobs, which, number, -3)
                    yield devices, (link[0], use), cores, marked

    def additions(self, state: State) -> Iterator[State]:
        devices, link, cores, jobs = state
        if len(cores) == self.cores:
            return
        for which in range(len(self.gradients)):
            if any(busy == which for _, busy, _ in cores):
                continue
            for number in range(self.count):
                if jobs[which][number] == 1:
                    begun = tuple(sorted((*cores, (self.add[which], which, number))))
                    yield devices, link, begun, self.mark(jobs, which, number)

    def mark(self, jobs: Jobs, which: int, number: int, value: int = -1) -> Jobs:
        row = (*jobs[which][:number], value, *jobs[which][number + 1 :])
        return (*jobs[:which], row, *jobs[which + 1 :])


def devices_optimum(problem: DevicesProblem, most: int) -> int | None:
    """Return the least makespan of a problem if it is at most `most`, else None."""
    return Oracle(problem).run(most)
