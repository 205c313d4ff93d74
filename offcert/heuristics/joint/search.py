"""The search for joint plans: what runs again, what leaves, and when.

A state is a program (`offcert.core.program`) and what may leave. Its value is exact: the program is
unrolled, what must be absent leaves from the outside inward, and the ordered schedule of these
transfers is timed, in ten microseconds on a network of 350 operations. Annealing changes segments,
what is kept in them, and what may leave; the best states become executions, on whose transfers the
searches for offloading go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType

from offcert.core.program import Program
from offcert.heuristics.joint.annealing import ALONE, JointAnnealer, Spreading, alike, weight_of
from offcert.heuristics.joint.evaluation import evaluate
from offcert.heuristics.joint.plans import JointPlan, improved, realised, tidied
from offcert.heuristics.joint.repeats import repeats_of
from offcert.heuristics.joint.starts import guided, starts
from offcert.heuristics.joint.state import UNCOVERED, JointState, new_state, new_work, state_of
from offcert.heuristics.joint.tables import COMPUTE, Ranges, Tables, tables_of, tables_within
from offcert.questions.schedule.problem import Problem

# Share of the time after which no more starts are tried. Arbitrary.
_STARTING = 0.3
# Temperatures as shares of the computing time: where coolings begin, in turn, and where they end.
# Arbitrary.
_HOT = (2e-3, 4e-3, 5e-4, 1e-3)
_COLD = 1e-5
# The fewest rounds of a cooling, and the seconds of the longest round: the clock is looked at after
# each, and nobody can interrupt one. Arbitrary.
_ROUNDS, _LONGEST_ROUND = 60, 0.3
# Rounds without a state that fits after which bytes that do not fit cost more, and the factor by
# which they do. Arbitrary.
_PATIENCE, _DEARER = 5, 1.5
# Coolings from other starts before those that start from the best state. Arbitrary.
_FRESH = 2
# Seconds between plans that are made of the best state while a cooling goes on, and how many times
# as long as making one takes they are at least. Arbitrary.
TAKING, RARELY = 1.0, 10.0
# Share of the time that a cooling takes. Arbitrary.
_COOLING = 0.2
# The chance, at first, that a change is made in other copies of a repeated stretch, too; it falls
# to 0 until the end. Arbitrary.
_SPREAD = 0.2
# Other coolings make a change in all copies of a group: up to which part of the cooling, in how
# many groups. Arbitrary.
_GROUPS = ((0.35, 4), (0.7, 16))
# Copies from which on changes spread: with the blocks of a ResNet-50, spreading costs more than it
# brings. Measured; no record.
_COPIES = 8
# Steps that are run to learn the speed. Arbitrary.
_TRIAL = 200
# The factor on the price of a byte that does not fit (`weight_of`) with which starts are compared:
# fitting counts more than time. Arbitrary.
_DEAR = 100.0


def joint_search(
    problem: Problem,
    *,
    time_limit: float,
    workers: int = 1,
    seed: int = 0,
    target: int = 0,
    ranges: Ranges | None = None,
    coolings: int | None = None,
    steps: int | None = None,
    transfers: float = 0.15,
    known: Sequence[Program] = (),
    shares: Mapping[int, float] = MappingProxyType({}),
    tables: Tables | None = None,
    on_improvement: Callable[[JointPlan], object],
) -> None:
    """Search for a short plan until the time is over or its makespan is at most `target` ticks.

    Where nothing may leave, only what runs again is searched for. A captured step says the `ranges`
    of computations that may be a segment; by default any may. Tables are made, unless they are
    given for a problem that differs in its limit and in what may leave, at most. The search starts
    from known programs, too, and from one near to the shares of computations that run again in a
    relaxation. The part `transfers` of the time that is left is for better transfers of the best
    program. The first plan and every better one are passed on. Two searches with the same seed,
    threads, number of coolings and steps a round agree, if not the time ends them and `transfers`
    is 0.

    An `InputError` says that a range is not inside of the network, a `MethodError` that the problem
    does not say what is computed from what.
    """
    begin = time.monotonic()
    until = begin + _STARTING * time_limit
    tables = tables_of(problem, ranges) if tables is None else tables_within(tables, problem)
    search = _Search(problem, tables, shares, until, workers, seed, target, on_improvement)
    search.begin_with(known)
    # To read a large problem takes a part of the time.
    time_limit = max(0.0, time_limit - (time.monotonic() - begin))
    search.run(time_limit, coolings, steps, transfers if problem.offload else 0.0)


@dataclass(frozen=True)
class Cooling:
    """How one cooling goes: first and last temperature in ticks, steps of a round, and rounds."""

    hot: float
    cold: float
    steps: int
    rounds: int = _ROUNDS


def cooling_of(
    annealer: JointAnnealer, compute: float, hot: float, seconds: float, steps: int | None
) -> Cooling:
    """Return a cooling that takes so many seconds; with `steps` a round it takes what it takes.

    It begins at `hot`, a share of the computing time.
    """
    hot, cold = hot * compute, _COLD * compute
    if steps is not None:
        return Cooling(hot, cold, steps)
    begun = time.monotonic()
    annealer.run(_TRIAL, hot, hot)
    each = max(1e-9, time.monotonic() - begun) / _TRIAL
    rounds = max(_ROUNDS, int(seconds / _LONGEST_ROUND))
    return Cooling(hot, cold, max(20, int(seconds / rounds / each)), rounds)


def rounds_of(
    pool: ThreadPoolExecutor,
    annealers: Sequence[JointAnnealer],
    cooling: Cooling,
    spreading: Callable[[int, float], Spreading] = lambda number, part: ALONE,
) -> Iterator[None]:
    """Cool all annealers once and yield after each round; bytes that do not fit get dearer.

    A change spreads as the number of an annealer, and the part of the cooling that is over, say.
    """
    factor = (cooling.cold / cooling.hot) ** (1 / cooling.rounds)
    for round_ in range(cooling.rounds):
        high, part = cooling.hot * factor**round_, round_ / cooling.rounds
        running = [
            pool.submit(each.run, cooling.steps, high, high * factor, spreading(number, part))
            for number, each in enumerate(annealers)
        ]
        for each in running:
            each.result()
        if round_ % _PATIENCE == _PATIENCE - 1:
            for annealer in annealers:
                if not annealer.fits:
                    annealer.penalise(_DEARER * annealer.weight)
        yield


def _spreading(way: int, part: float) -> Spreading:
    """Return the spreading of changes when some part of a cooling is over.

    Coolings take turns in three ways, for nobody knows before whether copies want the same: any
    copies do what one does; groups of them do; or each is changed alone.
    """
    if way == 0:
        return _SPREAD * (1 - part), 0
    if way == 1:
        return next(((1.0, parts) for until, parts in _GROUPS if part < until), ALONE)
    return ALONE


class _Search:
    def __init__(
        self,
        problem: Problem,
        tables: Tables,
        shares: Mapping[int, float],
        until: float,
        workers: int,
        seed: int,
        target: int,
        on_improvement: Callable[[JointPlan], object],
    ) -> None:
        self.problem = problem
        self.tables = tables
        self.compute = max(1.0, float(self.tables.settings[COMPUTE]))
        self.work = new_work(self.tables)
        self.target = target
        self.seed = seed
        self.tell = on_improvement
        self.best: JointPlan | None = None
        self.estimate = float("inf")
        self.taken, self.seconds_taking = time.monotonic(), 0.0
        self.known: JointState | None = None
        weight = _DEAR * weight_of(self.tables, problem.trace.peak_memory)
        self.guided = bool(shares) and len(self.tables.range_first) > 0
        near: list[JointState] = []
        if self.guided:
            near = guided(self.tables, shares, self.work, weight, workers, until)
        classes, most = alike(self.tables), (_FRESH + 1) * workers
        found = starts(self.tables, classes, self.work, weight, most, until)
        self.starts = [*near, *found, new_state(self.tables)]
        self.spreads = max(repeats_of(self.tables).copies, default=0) >= _COPIES
        self.annealers = [
            JointAnnealer(self.tables, self._start(number), seed + 7919 * number, weight)
            for number in range(workers)
        ]

    def begin_with(self, known: Sequence[Program]) -> None:
        """Let coolings that start from the best start from these, if they are better."""
        for program in known:
            state = state_of(program, self.tables)
            if state is not None:
                found = float(evaluate(self.tables, state, self.work, 0.0))
                if not self.work.facts[UNCOVERED] and found < self.estimate:
                    self.known, self.estimate = state, found

    def _start(self, number: int) -> JointState:
        return self.starts[number % len(self.starts)]

    def run(
        self, time_limit: float, coolings: int | None, steps: int | None, transfers: float
    ) -> None:
        begin = time.monotonic()
        end = begin + (1 - transfers) * time_limit
        # Plans in which tensors only leave, or computations only run again, count, too.
        for state in (new_state(self.tables), self._start(0)):
            self._realise(state, anyhow=True)
        if self.known is not None:
            self._realise(self.known)
            # The relaxation's program has not been tried yet, so the first annealer keeps it.
            for annealer in self.annealers[1 if self.guided else 0 :: 2]:
                annealer.restart(self.known)
        done = 0
        try:
            with ThreadPoolExecutor(len(self.annealers)) as pool:
                while not self._met and (coolings is None or done < coolings):
                    left = end - time.monotonic()
                    if left <= 0:
                        break
                    # The time that is left is divided equally.
                    parts = round(left / (_COOLING * time_limit)) if isfinite(left) else 1
                    seconds = left / max(1, parts)
                    hot = _HOT[done % len(_HOT)]
                    cooling = cooling_of(self.annealers[0], self.compute, hot, seconds, steps)
                    self._cool(pool, cooling, done, end)
                    self._take_best()
                    done += 1
                    if time.monotonic() < end:
                        self._restart(done)
        except KeyboardInterrupt:
            self._take_best()
            raise
        if transfers:
            left = begin + time_limit - time.monotonic()
            self._improve(left if coolings is None else transfers * time_limit)

    @property
    def _met(self) -> bool:
        return self.best is not None and self.best.schedule.makespan <= self.target

    def _cool(self, pool: ThreadPoolExecutor, cooling: Cooling, done: int, end: float) -> None:
        """Cool all annealers once, after so many times."""

        def spreading(number: int, part: float) -> Spreading:
            return _spreading((done + number) % 3, part) if self.spreads else ALONE

        for _ in rounds_of(pool, self.annealers, cooling, spreading):
            now = time.monotonic()
            if now >= end or min(e.makespan for e in self.annealers) <= self.target:
                return
            # Whoever is interrupted before the cooling ends has lost little.
            if now - self.taken > max(TAKING, RARELY * self.seconds_taking):
                self._take_best()

    def _restart(self, done: int) -> None:
        """Begin again from other starts first, then from the best of all and that of each."""
        leader = min(self.annealers, key=lambda each: each.makespan)
        for number, annealer in enumerate(self.annealers):
            if done < _FRESH:
                annealer.restart(self._start(done * len(self.annealers) + number))
            else:
                own = annealer.makespan < float("inf") and (done + number) % 2 == 1
                best = self.known if self.known is not None else leader.best
                annealer.restart(annealer.best if own else best)

    def _take_best(self) -> None:
        """Make a plan of the best state if it is new."""
        begun = time.monotonic()
        leader = min(self.annealers, key=lambda each: each.makespan)
        if leader.makespan < self.estimate:
            self.estimate, self.known = leader.makespan, leader.best.copy()
            self._realise(tidied(self.tables, leader.best, self.work))
        self.taken = time.monotonic()
        self.seconds_taking = max(self.seconds_taking, self.taken - begun)

    def _realise(self, state: JointState, anyhow: bool = False) -> None:
        plan = realised(self.problem, self.tables, state, anyhow)
        if plan is not None:
            self._offer(plan)

    def _offer(self, plan: JointPlan) -> None:
        if self.best is None or plan.schedule.makespan < self.best.schedule.makespan:
            self.best = plan
            self.tell(plan)

    def _improve(self, seconds: float) -> None:
        """Search for better transfers of the best plan."""
        if self.best is None or self._met or seconds <= 0:
            return
        improved(
            self.problem,
            self.best,
            time_limit=seconds,
            seed=self.seed,
            target=self.target,
            on_improvement=self._offer,
        )
