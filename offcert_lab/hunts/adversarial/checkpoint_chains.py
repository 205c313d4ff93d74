"""Searches for the chains on which checkpoints, or an assumption about them, do worst."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from offcert.certification.search import UnsoundError
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError, MethodError, NoPlanError, PlanError
from offcert.core.execution import Execution
from offcert.core.platform import Platform
from offcert.instances.generator import knob
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.questions.schedule.simulate import simulate
from offcert_lab.hunts.adversarial.chains import Hunted
from offcert_lab.hunts.adversarial.numbers import Numbers
from offcert_lab.hunts.adversarial.values import Contest, Score

# Seconds and points of an exact search; the chains are small. Arbitrary.
_SECONDS = 20.0
_MOST_POINTS = 200_000


@dataclass(frozen=True)
class CheckpointValue:
    """A value by name."""

    of: Callable[[Problem], int | None]  # From a problem to the value, or None if there is none.
    minimise: Minimise  # Whether it is of bytes or of ticks within the memory.
    offload: bool = False  # Whether it means something only where tensors may leave.
    # Whether no other value of its kind, with the same things allowed, is below it.
    least: bool = False


def _chain(problem: Problem) -> CheckpointChain:
    chain = problem.checkpoint_chain
    assert chain is not None
    return chain


def _selected(name: str) -> Callable[[Problem], int]:
    """Return the live bytes of what a published algorithm selects by the sizes of outputs."""

    def live(problem: Problem) -> int:
        from offcert.heuristics.checkpoint.live import live_bytes
        from offcert.heuristics.checkpoint.selections import SELECTIONS

        chain = _chain(problem)
        return live_bytes(chain, SELECTIONS[name].select(chain.output).checkpoints)

    return live


def _live(problem: Problem) -> int:
    from offcert.heuristics.checkpoint.live_curve import live_selection

    return live_selection(_chain(problem)).memory


def _nested(problem: Problem) -> int | None:
    from offcert.heuristics.checkpoint.persistent import persistent_least_memory

    try:
        strategy = persistent_least_memory(_chain(problem), max_points=_MOST_POINTS)
    except MethodError:
        return None
    return strategy.expand(_chain(problem).network()).trace.peak_memory


def _persistent(problem: Problem) -> int | None:
    from offcert.heuristics.checkpoint.persistent import persistent

    try:
        chain = _chain(problem)
        strategy = persistent(chain, problem.platform.memory, None, _MOST_POINTS)
    except (MethodError, NoPlanError):
        return None
    return _makespan(problem, strategy.expand(chain.network()))


def _anything(problem: Problem) -> int | None:
    from dataclasses import replace

    from offcert.formulations.rematerialisation.retention_cpsat import solve

    # It begins with what persistence allows: where that is optimal, the bound says so at once.
    outcome = solve(replace(problem, offload=False), time_limit=_SECONDS)
    if outcome.interrupted:
        raise KeyboardInterrupt
    complete = outcome.objective is not None and outcome.objective == outcome.lower_bound
    return outcome.objective if complete else None


def _combined(problem: Problem) -> int | None:
    from offcert.heuristics.combined.search import combined_plan

    try:
        plan = combined_plan(problem, None)
        schedule = plan.atomic(problem)
    except (MethodError, NoPlanError, PlanError):
        return None
    return None if check(problem.executed(plan.execution), schedule) else schedule.makespan


def _moved_alone(problem: Problem) -> int | None:
    from offcert_lab.hunts.adversarial.values import optimum

    plain = problem.plain()
    fits = plain.trace.least_memory <= plain.platform.memory
    return optimum(plain) if fits else None


def _makespan(problem: Problem, execution: Execution) -> int | None:
    executed = problem.executed(execution)
    try:
        return simulate(executed, Plan()).makespan
    except PlanError:
        return None


_SELECTED = ("sqrt", "budget", "reforwarding", "algorithm-3", "algorithm-5", "algorithm-6")
VALUES: dict[str, CheckpointValue] = {
    **{name: CheckpointValue(_selected(name), Minimise.MEMORY) for name in _SELECTED},
    # No other checkpoints have fewer live bytes; segments inside of segments may.
    "live-selection": CheckpointValue(_live, Minimise.MEMORY),
    "persistent-memory": CheckpointValue(_nested, Minimise.MEMORY),
    "persistent": CheckpointValue(_persistent, Minimise.TIME),
    "rematerialisation": CheckpointValue(_anything, Minimise.TIME, least=True),
    "combined": CheckpointValue(_combined, Minimise.TIME, offload=True),
    "offload-alone": CheckpointValue(_moved_alone, Minimise.TIME, offload=True),
}
NAMES = tuple(VALUES)
# By what each is measured if nothing is said.
USUAL = {Minimise.MEMORY: "live-selection", Minimise.TIME: "rematerialisation"}


def checkpoint_value(name: str, field: str) -> CheckpointValue:
    """Return a value by name.

    Raises
    ------
    InputError
        One sentence that names `field`, if there is none of that name.
    """
    if name not in VALUES:
        raise InputError(f'{field} must be one of {", ".join(NAMES)}, not "{name}"')
    return VALUES[name]


# Places of these numbers in a candidate. By definition.
OUTPUT, EXTRA, GRADIENT = 2, 3, 4


@dataclass(frozen=True)
class CheckpointNumbers(Numbers):
    """All numbers of a chain whose stages may run again; within a memory, with time to minimise."""

    NAMES: ClassVar[tuple[str, ...]] = (
        *("forward", "backward", "output", "extra", "gradient", "forward ws", "backward ws"),
    )
    EXTRA: ClassVar[tuple[int, ...]] = (0, 0, 1, 0, 1, 0, 0)
    OFFLOAD: ClassVar[bool] = False
    MINIMISE: ClassVar[Minimise] = Minimise.TIME

    @property
    def checkpoint_chain(self) -> CheckpointChain:
        """The chain alone."""
        forward, backward, output, extra, gradient, in_forward, in_backward = self.rows
        saved = [out + more for out, more in zip(output[1:], extra, strict=True)]
        return CheckpointChain(forward, backward, output, saved, gradient, in_forward, in_backward)

    def problem(self, transfers: Transfers = Transfers.ATOMIC, name: str = "candidate") -> Problem:
        """Return the problem of these numbers."""
        return Problem(
            name,
            self.checkpoint_chain,
            Platform(self.memory, self.rate),
            transfers,
            recompute=Recompute.ANY,
            offload=self.OFFLOAD,
            minimise=self.MINIMISE,
        )

    @property
    def least_memory(self) -> int:
        """Bytes that the largest computation takes alone; 0 where memory is no limit."""
        return self.problem().least_memory if self.MINIMISE is Minimise.TIME else 0


@dataclass(frozen=True)
class MovingNumbers(CheckpointNumbers):
    """The same with tensors that may leave."""

    OFFLOAD: ClassVar[bool] = True


@dataclass(frozen=True)
class ByteNumbers(CheckpointNumbers):
    """The same with bytes to minimise."""

    MINIMISE: ClassVar[Minimise] = Minimise.MEMORY


class CheckpointContest(Contest):
    """A ratio of two values to be maximised, on chains whose stages may run again.

    Parameters
    ----------
    against : str
        Who shall look bad: one of `checkpoint_values.NAMES`.
    by : str
        The value by which it is measured, of the same unit.

    Raises
    ------
    InputError
        If a name is not known, or the two are not of the same unit.
    """

    def __init__(self, against: str, by: str) -> None:
        self.against = against
        self.by = by
        self.transfers, self.is_bound = Transfers.ATOMIC, False
        self._over = checkpoint_value(against, "against")
        self._under = checkpoint_value(by, "by")
        if self._over.minimise is not self._under.minimise:
            raise InputError(
                f"against {against} and by {by} cannot be compared: one is of bytes, the other of "
                "ticks"
            )

    @property
    def numbers(self) -> type[CheckpointNumbers]:
        """The class that makes chains of a candidate's numbers."""
        if self._over.minimise is Minimise.MEMORY:
            return ByteNumbers
        return MovingNumbers if self._over.offload or self._under.offload else CheckpointNumbers

    def score(self, problem: Problem, at_least: Fraction = Fraction(0)) -> Score | None:
        """Return both values, or None if one is not established or the ratio is less than asked.

        Raises
        ------
        UnsoundError
            If something is below what is least of its kind.
        """
        over = self._over.of(problem)
        # What nothing can beat costs most; it is at least the computing time.
        floor = problem.trace.compute_time if self._over.minimise is Minimise.TIME else 1
        if over is None or over < at_least * floor:
            return None
        under = self._under.of(problem)
        if not under:
            return None
        alike = not self._over.offload
        if self._under.least and alike and over < under:
            raise UnsoundError(
                f"{self.against} is {over} where {self.by}, {under}, is least: {problem.network}, "
                f"{problem.platform}"
            )
        score = Score(over, under)
        return score if score.ratio >= at_least else None


@dataclass(frozen=True, kw_only=True)
class AdversarialCheckpoints(Hunted):
    """Small chains on which checkpoints take much more memory, or time, than others would."""

    kind: ClassVar[str] = "adversarial-checkpoint"
    summary: ClassVar[str] = "search for the chain on which checkpoints do worst"

    against: str = knob("sqrt", "what shall look bad", choices=NAMES)
    by: str = knob("usual", "what it is measured by", choices=("usual", *NAMES))

    def contest(self) -> CheckpointContest:
        """Return the ratio that is maximised."""
        usual = USUAL[checkpoint_value(self.against, "against").minimise]
        return CheckpointContest(self.against, usual if self.by == "usual" else self.by)
