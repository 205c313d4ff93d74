"""`certify_split`: the best split, the best alternatives, and a proof of how good they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from offcert.certification.interrupts import ending_whole
from offcert.certification.running import Running, SearchProgress, keeper
from offcert.certification.split_cases import RoundSearch
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.options import require_count, require_gap, require_seconds, require_seed
from offcert.core.result import SolveStatus
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate, current_versions
from offcert.proofs.questions import SCHEDULE, SPLIT
from offcert.proofs.split_certificate import RoundAnswer, SplitCertificate
from offcert.questions.schedule.result import Result
from offcert.questions.split.problem import SplitProblem

# Share of the time that is kept for schedules of the split and the algorithms chosen. Arbitrary.
_LAST = 0.25
# The step that a search which goes on names.
_WORK = "a search over choices"


def certify_split(
    step: SplitProblem,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    target_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[SplitCertificate], None] | None = None,
) -> SplitCertificate:
    """Choose a split and alternatives, schedule the rounds, and bound what any choice could give.

    Parameters
    ----------
    step : SplitProblem
        Any; if no split fits, the certificate says so.
    time_limit : float
        Seconds. What is known then is returned; an interrupt (Ctrl-C) does the same.
    workers : int
        Threads for solvers that can use several.
    target_gap : float
        Stop when ``(objective - bound) / objective`` is at most this.
    seed : int
        Seed of every random choice.
    progress : callable, optional
        Told of every improvement, and of the sub-batch with the best schedule.
    keep : callable, optional
        Given a certificate of what is known, at improvements about every second: written to a file,
        it outlives a crash of this process.

    Raises
    ------
    InputError
        If an argument is of the wrong type or out of its range.
    """
    if not isinstance(step, SplitProblem):
        raise InputError(f"step must be a SplitProblem, not {short_repr(step)}")
    seconds = require_seconds(time_limit, "time_limit")
    workers, target = require_count(workers, "workers"), require_gap(target_gap, "target_gap")
    seed = require_seed(seed, "seed")
    settings = Settings(time_limit=seconds, workers=workers, target_gap=target, seed=seed)
    search = SplitSearch(step, settings, progress, keeper(SPLIT.command, settings, keep))
    known = partial(search.certificate, SPLIT.command, settings)
    try:
        with ending_whole(known):
            search.run()
    except KeyboardInterrupt:
        search.note(interrupted=True)
    return known()


class SplitSearch(Running[SplitCertificate]):
    """Searches over choices: cases that bound, and schedules of the best choice of each round."""

    question = SPLIT

    def __init__(
        self,
        problem: SplitProblem,
        settings: Settings,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[SplitSearch], None] | None = None,
    ) -> None:
        assert settings.time_limit is not None
        super().__init__(settings.time_limit, progress, keep)
        self.problem = problem
        self._step = _WORK
        self._last = _LAST * settings.time_limit
        self._target = settings.target_gap or 0.0
        self._asked = settings.workers or 1, settings.seed or 0, self._target
        self._told: tuple[int | None, int, int] | None = None
        self._rows = [
            [RoundSearch(each, problem.scheduling) for each in split.rounds]
            for split in problem.splits
        ]

    def _bound(self, split: int) -> float:
        rounds = zip(self.problem.splits[split].rounds, self._rows[split], strict=True)
        return sum(each.count * search.lower_bound for each, search in rounds)

    def _value(self, split: int) -> float:
        rounds = zip(self.problem.splits[split].rounds, self._rows[split], strict=True)
        return sum(
            each.count * (inf if search.best is None else search.best.makespan)
            for each, search in rounds
        )

    def _best(self) -> int:
        return min(range(len(self._rows)), key=self._value)

    @property
    def objective(self) -> int | None:
        """Ticks of the best schedules of all rounds."""
        value = self._value(self._best())
        return None if value == inf else int(value)

    @property
    def lower_bound(self) -> int:
        """Ticks that no split and no choice can do without; 0 if nothing fits."""
        bound = min(map(self._bound, range(len(self._rows))))
        return 0 if bound == inf else int(bound)

    @property
    def impossible(self) -> bool:
        """Whether nothing fits."""
        return min(map(self._bound, range(len(self._rows)))) == inf

    @property
    def done(self) -> bool:
        """Whether the target is reached, or nothing fits."""
        value = self.objective
        met = value is not None and value - self.lower_bound <= self._target * value
        return met or self.impossible

    def run(self) -> None:
        """Work where the bound is least, and now and then on the best schedule."""
        improved: tuple[int, float] | None = None
        while not self.done:
            self._tell_news()
            best = self._best()
            now = best, self._value(best)
            if now[1] < inf and now != improved:
                for search in self._rows[best]:
                    search.improve(self._share(0.1), *self._asked)
                improved = best, self._value(best)
            elif self.remaining <= self._last or not self._advance():
                break
            if self.late:
                break
        self._tell_news()

    def _share(self, part: float) -> float:
        return max(0.2, part * self.remaining)

    def _advance(self) -> bool:
        """Work on the split of least bound; return whether anything could be done anywhere."""
        for split in sorted(range(len(self._rows)), key=self._bound):
            rounds = zip(self.problem.splits[split].rounds, self._rows[split], strict=True)
            active = [(each.count * search.gap, search) for each, search in rounds]
            for _, search in sorted(active, key=lambda pair: -pair[0]):
                if not search.stuck():
                    search.step(self._share(0.1), *self._asked)
                    return True
        return False

    def _tell_news(self) -> None:
        news = self.objective, self.lower_bound, self._best()
        if news != self._told:
            self._told = news
            super()._tell_news()

    def _tell(self) -> None:
        if self._progress is not None:
            chosen = f"sub-batch {self.problem.sizes[self._best()]}"
            news = SearchProgress(self.seconds, chosen, self.objective, self.lower_bound)
            self._progress(news)

    def _certificate(self, **origin: Any) -> SplitCertificate:
        cases = tuple(tuple(search.root.case() for search in row) for row in self._rows)
        best: int | None = self._best()
        answers: tuple[RoundAnswer, ...] = ()
        if self.objective is None:
            best = None
        else:
            answers = tuple(map(self._answer, self._rows[self._best()]))
        failed = {
            step: message
            for row in self._rows
            for search in row
            for step, message in search.failed.items()
        }
        origin["notes"] = replace(origin["notes"], failed=failed)
        return SplitCertificate(self.problem, best, answers, cases, **origin)

    def _answer(self, search: RoundSearch) -> RoundAnswer:
        assert search.best is not None
        problem = self.problem.scheduling(search.round.chosen(search.best.choice))
        known = search.certificate
        if known is not None and known.problem == problem and known.result.schedule is not None:
            makespan = known.result.objective
            if makespan is not None and makespan <= search.best.makespan:
                return RoundAnswer(search.best.choice, known)
        # A round without any bound is still the best one if it takes no time.
        best = search.best.makespan == 0
        result = Result(SolveStatus.OPTIMAL if best else SolveStatus.FEASIBLE, search.best.schedule)
        found = Certificate(problem, result, method=SCHEDULE.command, versions=current_versions())
        return RoundAnswer(search.best.choice, found)
