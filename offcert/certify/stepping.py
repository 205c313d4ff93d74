"""`certify_step`: the best split, the best alternatives, and a proof of how good they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from offcert.certify.keeping import Keeping
from offcert.certify.step_cases import RoundSearch
from offcert.certify.watchdog import ending_whole
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.options import require_count, require_gap, require_seconds, require_seed
from offcert.core.problem import Problem
from offcert.core.result import Result, SolveStatus
from offcert.core.step import StepProblem
from offcert.core.trace import Trace
from offcert.core.units import format_time
from offcert.proofs.certificate import Certificate, current_versions
from offcert.proofs.questions import SCHEDULE
from offcert.proofs.settings import Notes, Settings
from offcert.proofs.step_certificate import RoundAnswer, StepCertificate

# Part of the time that is kept for schedules of what has been chosen.
_LAST = 0.25
# What a search that goes on is doing.
_WORK = "a search over choices"


def certify_step(
    step: StepProblem,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    target_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    keep: Callable[[StepCertificate], None] | None = None,
) -> StepCertificate:
    """Choose a split and alternatives, schedule the rounds, and bound what any choice could give.

    Parameters
    ----------
    step : StepProblem
        Any; if no split fits, the certificate says so.
    time_limit : float
        Seconds. What is known then is returned; an interrupt (Ctrl-C) does the same.
    workers : int
        Threads for solvers that can use several.
    target_gap : float
        Stop when ``(objective - bound) / objective`` is at most this.
    seed : int
        Of every random choice.
    progress : callable, optional
        Told in a line of every improvement.
    keep : callable, optional
        Given a certificate of what is known, at improvements about every second: written to a file,
        it outlives a crash of this process.

    Raises
    ------
    InputError
        If an argument is of the wrong type or out of its range.
    """
    if not isinstance(step, StepProblem):
        raise InputError(f"step must be a StepProblem, not {short_repr(step)}")
    seconds = require_seconds(time_limit, "time_limit")
    search = _Search(
        step,
        seconds,
        require_count(workers, "workers"),
        require_gap(target_gap, "target_gap"),
        require_seed(seed, "seed"),
        progress,
        keep,
    )
    try:
        with ending_whole(search.certificate):
            search.run()
    except KeyboardInterrupt:
        search.interrupted = True
    return search.certificate()


class _Search:
    def __init__(
        self,
        step: StepProblem,
        seconds: float,
        workers: int,
        target: float,
        seed: int,
        progress: Callable[[str], None] | None,
        keep: Callable[[StepCertificate], None] | None,
    ) -> None:
        self.step = step
        self.workers = workers
        self.target = target
        self.seed = seed
        self.progress = progress
        self.keeping = Keeping(None if keep is None else lambda: keep(self.certificate(_WORK)))
        self.settings = Settings(time_limit=seconds, workers=workers, target_gap=target, seed=seed)
        self.interrupted = False
        self.end = time.monotonic() + seconds
        self.searched = self.end - _LAST * seconds
        self.told = ""
        self.rows = [
            [RoundSearch(each, self._problem) for each in split.rounds] for split in step.splits
        ]

    def _problem(self, trace: Trace) -> Problem:
        step = self.step
        return Problem(step.name, trace, step.platform, step.transfers, step.units)

    def _bound(self, split: int) -> float:
        rounds = zip(self.step.splits[split].rounds, self.rows[split], strict=True)
        return sum(each.count * search.lower_bound for each, search in rounds)

    def _value(self, split: int) -> float:
        rounds = zip(self.step.splits[split].rounds, self.rows[split], strict=True)
        return sum(
            each.count * (inf if search.best is None else search.best.makespan)
            for each, search in rounds
        )

    def _best(self) -> int:
        return min(range(len(self.rows)), key=self._value)

    def _closed(self) -> bool:
        value = self._value(self._best())
        bound = min(map(self._bound, range(len(self.rows))))
        return bound == inf or (value < inf and value - bound <= self.target * value)

    def run(self) -> None:
        """Work where the bound is least, and now and then on the best schedule."""
        improved: tuple[int, float] | None = None
        while not self._closed():
            self._tell()
            best = self._best()
            now = best, self._value(best)
            late = time.monotonic() >= self.searched
            if now[1] < inf and now != improved:
                for search in self.rows[best]:
                    search.improve(self._share(0.1), self.workers, self.seed, self.target)
                improved = best, self._value(best)
            elif late or not self._advance():
                break
            if time.monotonic() >= self.end:
                break
        self._tell()

    def _share(self, part: float) -> float:
        return max(0.2, part * (self.end - time.monotonic()))

    def _advance(self) -> bool:
        """Work on the split of least bound; return whether anything could be done anywhere."""
        for split in sorted(range(len(self.rows)), key=self._bound):
            rounds = zip(self.step.splits[split].rounds, self.rows[split], strict=True)
            active = [(each.count * search.gap, search) for each, search in rounds]
            for _, search in sorted(active, key=lambda pair: -pair[0]):
                if not search.stuck():
                    search.step(self._share(0.1), self.workers, self.seed, self.target)
                    return True
        return False

    def _tell(self) -> None:
        best = self._best()
        value, bound = self._value(best), min(map(self._bound, range(len(self.rows))))
        gap = f"gap {100 * (value - bound) / max(value, 1):.4f} %  " if value < inf else ""
        text = (
            f"bound {self._shown(bound)}  best {self._shown(value)}  {gap}"
            f"sub-batch {self.step.sizes[best]}"
        )
        if text == self.told:
            return
        self.told = text
        if self.progress is not None:
            self.progress(text)
        self.keeping.at_news()

    def _shown(self, value: float) -> str:
        return "-" if value == inf else format_time(int(value), self.step.units)

    def certificate(self, unfinished: str | None = None) -> StepCertificate:
        """Return what is known now, and what is running if the search goes on."""
        bounds = tuple(tuple(search.root.case() for search in row) for row in self.rows)
        best: int | None = self._best()
        answers: tuple[RoundAnswer, ...] = ()
        if best is not None and self._value(best) < inf:
            answers = tuple(map(self._answer, self.rows[best]))
        else:
            best = None
        failed = {
            step: message
            for row in self.rows
            for search in row
            for step, message in search.failed.items()
        }
        notes = Notes(interrupted=self.interrupted, unfinished=unfinished, failed=failed)
        return StepCertificate(
            self.step,
            best,
            answers,
            bounds,
            settings=self.settings,
            notes=notes,
            versions=current_versions(),
        )

    def _answer(self, search: RoundSearch) -> RoundAnswer:
        assert search.best is not None
        problem = self._problem(search.round.chosen(search.best.choice))
        known = search.certificate
        if known is not None and known.problem == problem and known.result.schedule is not None:
            makespan = known.result.objective
            if makespan is not None and makespan <= search.best.makespan:
                return RoundAnswer(search.best.choice, known)
        result = Result(SolveStatus.FEASIBLE, search.best.schedule)
        found = Certificate(problem, result, method=SCHEDULE.command, versions=current_versions())
        return RoundAnswer(search.best.choice, found)
