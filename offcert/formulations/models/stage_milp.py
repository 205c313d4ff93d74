"""Atomic transfers by stages: a mixed-integer linear program without a time index.

Binaries say, per tensor and operation, "has left before it" and "has begun to come back by it" (its
complement: "not yet back"), monotone in the operations; link time is shared out in the stretches
between instants. An *instant* is the start or the end of an operation; time before the first one
counts as a stretch too. (Notes on the papers, §1, "stage model".)

Why it bounds every schedule, interleaved ones included
-------------------------------------------------------
Take any schedule with atomic transfers, prefetches before later offloads or not, on either link.
Let ``X_v(k)`` and ``Y_g(k)`` be the link time that the offload of v and the prefetch of g have had
by instant k, ``left[v, k]`` whether the offload has ended by k, ``back[g, k]`` whether the prefetch
has begun by k: before k if k is an end or the start of an operation that lasts no time, at k at the
latest if it is the start of a longer one (which sees such a prefetch).

1. X and Y grow; in a stretch they grow together (simplex) or each (duplex) by at most its length. X
   is 0 until its writer has ended and Y until the gap has been opened; Y is complete when the gap
   closes. Y is 0 until X is complete, so of its length Y is at most the share that X is of its.
2. ``left ≤ X / length`` and ``Y / length ≤ back ≤ left`` at every instant; ``back`` grows with k.
3. While an operation runs, and so at its start and just before its end, what is absent reaches what
   must be, rounded up to a reachable sum. Absent at such an instant is a gap that spans the
   operation, is evicted, has ``left = 1`` (offloads that end at an operation's very end may count:
   that relaxes) and ``back = 0``.

Nothing here orders offloads and prefetches, or asks for one gap a tensor.

When it is exact
----------------
With ``exact=True``, binaries "begun" and "done" for both directions at every instant add what the
preemptive link ignores: at an instant at most one transfer (a direction) is under way, and in a
stretch through which one is under way no other begins and ends. Every schedule satisfies that.
Conversely, on a simplex link a solution is a schedule. In each stretch, first finish what is under
way, then make the offloads that lie inside, then the prefetches that lie inside, and last,
right-aligned, begin what continues. The lengths fit. A transfer that had less link time than the
stretch it spans can be shifted (offloads later, prefetches earlier): nothing else uses the link
then. Prefetches that begin in a stretch take their memory after all its releases, so what is absent
then is at least what is absent at the stretch's end, where it was counted: for an operation's
stretch at its end; for idle time at the start of the next operation, which needs no less. Writers,
openings and closings are instants. So the optimum is that of the problem.

Stretches between instants at which nothing binds, opens, closes or is written are merged.

On a duplex link the directions would have to be synchronised inside a stretch, so there the program
stays a bound, with or without the extra binaries.
"""

from __future__ import annotations

import math

from offcert.formulations.common.linear_model import ROUNDING, LinearModel, Terms, scaled
from offcert.formulations.common.linear_solvers import SCIPY, require_solver, run_model
from offcert.formulations.common.outcome import ModelOutcome, ModelRun
from offcert.formulations.common.time_grid import TimeGrid, build_grid
from offcert.formulations.models.stage_instants import Instants, TransferVariables, plan_of
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule

# Part of the horizon that is taken off a bound, and units of the horizon. HiGHS and CBC hold rows
# and integrality to 1e-6 of such a unit: an error of that size in one row moves the bound by 1e-9
# of the horizon, and a thousand times as much comes off. Derived.
RELATIVE_MARGIN = 1e-6
_UNITS = 1000.0


def solve(
    problem: Problem,
    *,
    exact: bool = False,
    solver: str = SCIPY,
    time_limit: float = 60.0,
    threads: int = 1,
    upper_bound: int | None = None,
    hint: Schedule | None = None,
    lower_bound: int = 0,
) -> ModelOutcome:
    """Bound the makespan of a problem with atomic transfers, or solve it.

    Parameters
    ----------
    exact : bool
        Whether to add the order of transfers: then the program is exact on a simplex link, and a
        tighter bound on a duplex one.
    solver : str
        ``"scipy"``, or a name that PuLP knows.
    problem, time_limit, threads, upper_bound, hint, lower_bound
        As for `offcert.formulations.models.time_indexed.solve`.

    Returns
    -------
    ModelOutcome
        Also when the time runs out, the solver fails or the user interrupts. The model's bound is
        the solver's, less `RELATIVE_MARGIN` times the upper bound, rounded up.
        ``statistics["exact"]`` says whether the program was an exact one.

    Raises
    ------
    InputError
        If the solver is unknown or not available.
    """
    require_solver(solver)
    run = ModelRun(
        problem,
        upper_bound,
        hint,
        lower_bound,
        solver=solver,
        time_limit=time_limit,
        exact=exact and not problem.platform.duplex,
    )
    if run.feasible:
        with run.kept():
            _search(run, exact, solver, time_limit, threads)
    return run.outcome()


def _search(run: ModelRun, exact: bool, solver: str, time_limit: float, threads: int) -> None:
    """Build the program, run the solver and take over its answer, while schedules get better."""
    trace, duplex = run.problem.trace, run.problem.platform.duplex
    while True:
        best = run.best
        model = _program(run, exact)
        if model is None:
            run.nothing_within()
            return
        answer = run_model(run, model.model, solver, time_limit, threads)
        if answer.infeasible:
            run.nothing_within()
        margin = RELATIVE_MARGIN * run.upper
        run.statistics["margin"] = margin
        run.take_bound(answer.bound * model.axis.unit + trace.durations[-1], margin)
        if answer.values is None:
            return
        plan = plan_of(run.problem, model.axis, model.transfers, answer.values)
        run.take_plans([plan], exact=exact and not duplex)
        if not exact or run.finished or run.best is best or time_limit <= run.elapsed:
            return


def _program(run: ModelRun, exact: bool) -> StageModel | None:
    """Return the program, or None if windows leave no schedule.

    If windows refute shorter schedules than the best without a solver, an exact one has those of
    the best, and is asked for a shorter one all the same: what it claims is to be its own.
    """
    limits = run.limits if exact else [run.upper]
    for limit in limits:
        data = build_grid(run.problem, 1, limit)
        if data is None:
            continue
        model = StageModel(data, run.problem.platform.duplex, exact, limit)
        if not model.model.contradictory:
            run.upper = limits[0]
            last = (run.upper - run.problem.trace.durations[-1]) / model.axis.unit
            model.model.row(model.axis.operations[-1], -math.inf, last + ROUNDING)
            return model
    return None


class StageModel:
    """Columns and rows for one problem on a grid of one tick; `upper` ticks scale its times.

    On a duplex link the directions are independent. An `exact` program has the order of transfers,
    too.
    """

    def __init__(self, data: TimeGrid, duplex: bool, exact: bool, upper: int) -> None:
        self.data = data
        self.model = LinearModel()
        self.axis = Instants(data, self.model, max(1.0, upper / _UNITS))
        self.transfers = TransferVariables(data, self.axis, self.model, exact)
        self._add_link(duplex)
        self._add_returns()
        for o, amount in enumerate(data.required):
            if amount > 0:
                for k in self.axis.of(o):
                    self._add_memory(o, k, amount)
        if exact:
            self._add_exclusion(duplex)

    def _add_link(self, duplex: bool) -> None:
        """In each stretch transfers have no more link time than it lasts."""
        outward, inward = self.transfers.outward, self.transfers.inward
        for k in range(len(self.axis)):
            for queue in [outward, inward] if duplex else [outward + inward]:
                growth: Terms = []
                for leg in queue:
                    growth += leg.amount(k) + scaled(leg.amount(k - 1), -1.0)
                self.model.row([*self.axis.stretch(k), *scaled(growth, -1.0)], 0.0)

    def _add_returns(self) -> None:
        """A prefetch has link time only once its tensor has left."""
        for inward in self.transfers.inward:
            outward = self.transfers.out[inward.tensor]
            # No factor is less than 1, so that no tolerance is magnified.
            shorter = min(inward.length, outward.length)
            for k in range(inward.opens + 1, inward.closes):
                self.model.at_most(
                    scaled(inward.amount(k), outward.length / shorter),
                    scaled(outward.amount(k), inward.length / shorter),
                )
                if k in inward.begun and k in outward.done:
                    self.model.at_most(inward.begun[k], outward.done[k])

    def _add_memory(self, o: int, k: int, amount: int) -> None:
        """At an instant of an operation as much is absent as it requires."""
        terms: Terms = []
        for index in self.data.over[o]:
            gap, inward = self.data.gaps[index], self.transfers.inward[index]
            left, back = self.transfers.out[gap.tensor].done[k], inward.begun[k]
            absent = [*left, *scaled(back, -1.0)]
            if not gap.single:
                absent = [(self.model.column(0.0, 1.0), 1.0)]
                self.model.at_most(absent, left)
                self.model.at_most([*absent, *back], inward.happens)
            terms += scaled(absent, gap.size / amount)
        self.model.row(terms, 1.0 - ROUNDING)

    def _add_exclusion(self, duplex: bool) -> None:
        """At most one transfer is under way at an instant; none lies beside one that spans."""
        outward, inward = self.transfers.outward, self.transfers.inward
        for queue in [outward, inward] if duplex else [outward + inward]:
            for k in range(len(self.axis)):
                under_way: Terms = []
                for leg in queue:
                    under_way += leg.begun[k] + scaled(leg.done[k], -1.0)
                self.model.row(under_way, -1.0, 1.0)
                if k == 0:
                    continue
                spanned = [(self.model.column(0.0, 1.0), 1.0)]
                for leg in queue:
                    spans = [*leg.begun[k - 1], *scaled(leg.done[k], -1.0)]
                    self.model.row([*spanned, *scaled(spans, -1.0)], 0.0)
                    self.model.row([*scaled(spans, -1.0), *spanned], -1.0, 1.0)
